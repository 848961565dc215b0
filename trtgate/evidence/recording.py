"""What every recording of a live server shares: what is wanted, when it is read, what was lost."""

import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import requests

from trtgate.console import Console
from trtgate.errors import UsageError
from trtgate.plans.histogram import Histogram

TIMEOUT_S = 5.0
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|)")
_UNIT_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

Read = Callable[[], str]
Ticks = Iterable[float]  # seconds since the start, one for each reading; they end when reading shall end


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to record, and from where; `runtime` None is seen from the answer.

    `ceiling` ends the open bucket of a bucketed series, whose steps are left out and counted without it.
    """

    url: str
    for_s: float
    runtime: str | None = None
    raw: Path | None = None
    draft_len: int = 0
    metric: str | None = None
    ceiling: int | None = None

    @property
    def page(self) -> str:
        """The address that is read."""
        base = self.url.rstrip("/")
        return base if base.endswith("/metrics") else f"{base}/metrics"

    @property
    def name(self) -> str:
        """Host and port, as the name of the source."""
        return urlsplit(self.url).netloc


def parse_span(text: str) -> float:
    """Seconds of `90s`, `10m`, `2h`, `1d` or a bare number; `UsageError` for anything else."""
    match = _SPAN.fullmatch(text.strip())
    seconds = float(match.group(1)) * _UNIT_S[match.group(2)] if match else 0.0
    if not seconds > 0:
        raise UsageError(f"`{text}` is not a length of time", "write it as in `90s`, `10m` or `2h`")
    return seconds


@dataclass(slots=True)
class Log:
    """The readings of one recording, with what is to be said about them; `first` was read before the time began."""

    wanted: Wanted
    console: Console
    first: str
    read: Read
    ticks: Ticks
    elapsed_s: float = 0.0
    readings: int = 0
    failed: int = 0
    raw_error: str = ""
    losses: Counter[str] = field(default_factory=Counter)
    said: set[str] = field(default_factory=set)

    def answers(self) -> Iterator[str]:
        """Every answer; a reading that fails is counted, and the next one tried."""
        for elapsed_s in self.ticks:
            self.elapsed_s = elapsed_s
            self.readings += 1
            try:
                yield self.read()
            except UsageError as error:
                self.fail(error.message)
        self.console.progress_done()

    def fail(self, why: str) -> None:
        """Count a reading that brought nothing, and say why."""
        self.failed += 1
        self.say(f"{why}; reading goes on")

    def say(self, text: str) -> None:
        """Say something once, while reading goes on."""
        if text not in self.said:
            self.said.add(text)
            self.console.progress_done()
            self.console.step(text)

    def keep(self, lines: Iterable[str]) -> None:
        """Append to the raw file; a full disk must not end the recording, so that it is only noted."""
        kept = "".join(f"{line}\n" for line in lines)
        if self.wanted.raw is None or not kept:
            return
        try:
            self.wanted.raw.parent.mkdir(parents=True, exist_ok=True)
            with self.wanted.raw.open("a", encoding="utf-8") as file:
                file.write(kept)
        except OSError as error:
            self.raw_error = error.strerror or str(error)

    def show(self, steps: int) -> None:
        """Say how far it got."""
        self.console.progress(f"{self.elapsed_s:.0f} of {self.wanted.for_s:.0f} s: {steps} steps")

    def notes(self) -> Iterator[str]:
        """All that was lost, one sentence each."""
        for reason, count in self.losses.items():
            yield f"{count} {reason}"
        if self.failed:
            yield f"{self.failed} of {self.readings} readings failed"
        if self.raw_error:
            yield f"`{self.wanted.raw}` lacks rows: {self.raw_error}"


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C, SIGTERM or SIGHUP within the block into an event; a second one interrupts."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def note(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def ticks(for_s: float, every_s: float, stop: threading.Event) -> Iterator[float]:
    """Seconds since the start at each reading; the last comes at the end of the time or at once after a stop."""
    start = time.monotonic()
    while True:
        elapsed_s = time.monotonic() - start
        yield elapsed_s
        if elapsed_s >= for_s or stop.is_set():
            return
        stop.wait(min(every_s, for_s - elapsed_s))


def reader(session: requests.Session, wanted: Wanted) -> Read:
    """A function that reads the page once; `UsageError` where it does not answer."""

    def read() -> str:
        try:
            answer = session.get(wanted.page, timeout=TIMEOUT_S)
        except requests.RequestException as error:
            raise UsageError(
                f"`{wanted.page}` does not answer: {type(error).__name__}", "check the address"
            ) from error
        if not answer.ok:
            raise UsageError(f"`{wanted.page}` answers {answer.status_code}", "check the address")
        return answer.text

    return read


def finished(made: Histogram, log: Log) -> Histogram:
    """With how long it took and what was lost."""
    notes = tuple(log.notes())
    times: Mapping[str, object] = {"span_s": round(log.elapsed_s, 3), "time_unit": "s"}
    sources = tuple(
        source.model_copy(update={**times, "notes": (*source.notes, *notes)}) for source in made.sources
    )
    return made.model_copy(update={"sources": sources})
