"""The connections of a run: opened ahead of need, kept while alive, never used when about to be closed."""

import sys

from trtgate.loads.client import Endpoint, Line, LineError
from trtgate.loads.clock import Clock
from trtgate.loads.poller import READ, WRITE, Poller
from trtgate.loads.tls import TlsLine

# Uvicorn, which serves all runtimes here, closes a used connection after 5 s without a request.
_USED_S, _FRESH_S = 4.0, 30.0
_PAUSE_S = 1.0


class Lines:
    """All open connections, by descriptor; at most `limit`."""

    def __init__(self, endpoint: Endpoint, clock: Clock, poller: Poller, *, limit: int) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._poller = poller
        self._limit = limit
        self._idle: list[Line] = []
        self._opening: set[int] = set()
        self._pause_until_s = 0.0
        self.by_fd: dict[int, Line] = {}

    @property
    def full(self) -> bool:
        """Whether no further connection may be opened."""
        return len(self.by_fd) >= self._limit

    @property
    def stocked(self) -> bool:
        """Whether the spare connections are there, or cannot be had."""
        return not self._opening

    def take(self) -> Line | None:
        """An idle connection, the last one used first; else a new one, not yet ready; `None` at the limit."""
        now_s = self._clock.now()
        while self._idle:
            line = self._idle.pop()
            if line.expires_s > now_s:
                return line
            self.drop(line)
        return None if self.full else self._open()

    def give(self, line: Line) -> None:
        """Take back a connection whose answer is complete."""
        line.expires_s = self._clock.now() + _USED_S
        self._idle.append(line)

    def drop(self, line: Line) -> None:
        """Close a connection and forget it; one that was opened to spare and failed pauses such openings."""
        del self.by_fd[line.fd]
        self._poller.unregister(line.fd)
        if line.fd in self._opening:
            self._opening.discard(line.fd)
            self.pause()
        if line in self._idle:
            self._idle.remove(line)
        line.close()

    def stock(self, wanted: int) -> None:
        """Open spare connections until `wanted` are idle; a failure pauses this for a second."""
        while len(self._idle) + len(self._opening) < wanted and not self.full:
            if self._clock.now() < self._pause_until_s:
                return
            try:
                line = self._open()
            except LineError:
                self.pause()
                return
            self._opening.add(line.fd)

    def pause(self) -> None:
        """Open no spare connections for a while."""
        self._pause_until_s = self._clock.now() + _PAUSE_S

    def settle(self, line: Line) -> None:
        """After an event: watch for what the line needs; a spare connection that became ready is idle."""
        self._poller.modify(line.fd, READ | WRITE if line.blocked else READ)
        if line.ready and line.fd in self._opening:
            self._opening.discard(line.fd)
            line.expires_s = self._clock.now() + _FRESH_S
            self._idle.insert(0, line)

    def close(self) -> None:
        """Close everything."""
        for line in list(self.by_fd.values()):
            self.drop(line)

    def _open(self) -> Line:
        kind = TlsLine if self._endpoint.tls else Line
        line = kind(self._endpoint, self._clock)
        self._poller.register(line.fd, READ | WRITE)
        self.by_fd[line.fd] = line
        return line


def raise_file_limit(wanted: int) -> None:
    """Let this process open `wanted` files, as far as its hard limit allows."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard > 0 else wanted, hard))
