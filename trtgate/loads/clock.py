"""The run's clock: monotonic seconds from its start, with the kernel's wall-clock stamps on the same line."""

import socket
import struct
import sys
import time

# SO_TIMESTAMPNS of Linux, which Python does not name; its control message has the same number.
_SO_TIMESTAMPNS = 35
_STAMP = struct.Struct("qq")
ANCILLARY_BYTES = socket.CMSG_SPACE(_STAMP.size)


def ask_for_stamps(connection: socket.socket) -> None:
    """Make the kernel say when it got the bytes of a socket, where it can: see `Clock.arrival`."""
    if sys.platform == "linux":
        connection.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


class Clock:
    """Monotonic time from the start of the run; `sync` follows the wall clock, whose steps it keeps."""

    __slots__ = ("_offset_ns", "_start_ns", "_zero_ns", "started_unix_s", "step_s")

    def __init__(self) -> None:
        self.restart()

    def restart(self, at_ns: int | None = None) -> None:
        """Make this moment the start, or another of the monotonic clock."""
        self._offset_ns = _offset_ns()
        self._start_ns = time.monotonic_ns() if at_ns is None else at_ns
        self._zero_ns = self._start_ns + self._offset_ns
        self.started_unix_s = (self._start_ns + self._offset_ns) / 1e9
        self.step_s = 0.0

    def now(self) -> float:
        """Seconds from the start."""
        return (time.monotonic_ns() - self._start_ns) / 1e9

    def arrival(self, control: list[tuple[int, int, bytes]]) -> float | None:
        """When the kernel got the last byte that `recvmsg` returned with this control data, if it says so."""
        if not control or control[0][1] != _SO_TIMESTAMPNS:
            return None
        stamp_s: int
        stamp_ns: int
        stamp_s, stamp_ns = _STAMP.unpack(control[0][2])
        return (stamp_s * 1_000_000_000 + stamp_ns - self._zero_ns) / 1e9

    def sync(self) -> None:
        """Measure the offset between both clocks anew; the largest change between two calls is `step_s`."""
        offset_ns = _offset_ns()
        self.step_s = max(self.step_s, abs(offset_ns - self._offset_ns) / 1e9)
        self._offset_ns = offset_ns
        self._zero_ns = self._start_ns + offset_ns


def timer_s() -> float:
    """The smallest step of the monotonic clock that a program sees, in seconds."""
    start_ns = time.monotonic_ns()
    while (now_ns := time.monotonic_ns()) == start_ns:
        pass
    return (now_ns - start_ns) / 1e9


def _offset_ns() -> int:
    """Wall clock minus monotonic clock: of five readings the one with the least time between its ends."""
    readings = []
    for _ in range(5):
        before_ns = time.monotonic_ns()
        wall_ns = time.time_ns()
        after_ns = time.monotonic_ns()
        readings.append((after_ns - before_ns, wall_ns - (before_ns + after_ns) // 2))
    return min(readings)[1]
