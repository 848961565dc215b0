"""Waiting for sockets, to a part of a millisecond where the system can."""

import select
from typing import Protocol

READ, WRITE = select.POLLIN, select.POLLOUT
_EXACT_S = 0.0015


class Poller(Protocol):
    """What the run needs of `epoll` or `poll`."""

    def register(self, fd: int, eventmask: int, /) -> None:
        """Watch a descriptor."""

    def modify(self, fd: int, eventmask: int, /) -> None:
        """Watch for other events."""

    def unregister(self, fd: int, /) -> None:
        """Watch no longer."""

    def wait(self, timeout_s: float, /) -> list[tuple[int, int]]:
        """Descriptors and their events, after `timeout_s` at the latest."""

    def close(self) -> None:
        """Give back what the system lent."""


class EpollPoller:
    """Linux: `epoll` rounds up to a millisecond, so a short wait is a `select` on its own descriptor."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._selectable = self._epoll.fileno() < 1024
        self.register = self._epoll.register
        self.modify = self._epoll.modify
        self.unregister = self._epoll.unregister
        self.close = self._epoll.close

    def wait(self, timeout_s: float, /) -> list[tuple[int, int]]:
        """As `Poller.wait`; above 1.5 ms it may return a little early with nothing."""
        if timeout_s >= _EXACT_S:
            return self._epoll.poll(timeout_s - 0.001)
        if timeout_s > 0 and self._selectable:
            select.select([self._epoll], (), (), timeout_s)
        return self._epoll.poll(0)


class PollPoller:
    """Other systems: `poll`, to the millisecond below, so that the last part is spent asking."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register = self._poll.register
        self.modify = self._poll.modify
        self.unregister = self._poll.unregister

    def wait(self, timeout_s: float, /) -> list[tuple[int, int]]:
        """As `Poller.wait`; may return early with nothing."""
        return self._poll.poll(int(timeout_s * 1000))

    def close(self) -> None:
        """Nothing was lent."""


def make_poller() -> Poller:
    """The best poller of this system."""
    return EpollPoller() if hasattr(select, "epoll") else PollPoller()
