"""Signals at awkward moments: held back while a process is made or ended, turned into exits elsewhere."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_back() -> Iterator[None]:
    """Deliver interrupts that come within the block after it; outside the main thread none can come."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _HELD}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if came:
            signal.raise_signal(came[0])


@contextmanager
def exits_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack as Ctrl-C does, where nobody else handles them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    unset = [number for number in _HELD[1:] if signal.getsignal(number) is signal.SIG_DFL]
    for number in unset:
        signal.signal(number, _exit)
    try:
        yield
    finally:
        for number in unset:
            signal.signal(number, signal.SIG_DFL)


def _exit(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)
