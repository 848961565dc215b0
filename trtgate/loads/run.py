"""The run: sends each ask at its time whatever is outstanding, and gives every ask an outcome."""

import bisect
import gc
import heapq
import math
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence

from trtgate.errors import UsageError
from trtgate.loads.base import Answer, Ask, LoadResult, Progress, Target
from trtgate.loads.client import Line, LineError, resolve
from trtgate.loads.clock import Clock
from trtgate.loads.flight import Flight, unsent
from trtgate.loads.instrument import Meter, read_instrument
from trtgate.loads.lines import Lines, raise_file_limit
from trtgate.loads.payload import Encoder
from trtgate.loads.poller import WRITE, make_poller
from trtgate.loads.progress import Reporter
from trtgate.loads.stream import MalformedError

_TICK_S = 0.1
_SPARE_S = 0.5
_OPEN_S = 5.0
_IDLE_S = 0.002
_ENCODE_S = 0.4e-6
_BLIND_S = 0.001
# While data comes and the kernel stamps it, waking for several reads at once saves a third of the processor
# time, which the server on the same host may need; only chunks closer together than this lose their distance.
_NAP_S = 0.0005
_AHEAD_BYTES = 8 << 20


def run_load(
    target: Target,
    asks: Sequence[Ask],
    *,
    timeout_s: float = 300.0,
    max_connections: int = 16_384,
    drain_s: float = 300.0,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    start_ns: int | None = None,
) -> LoadResult:
    """Send all asks on their schedule and return every outcome; blocks until the last one.

    A failing server makes failed answers, never an exception. An ask that finds `max_connections` in use
    waits and is marked `queued`; its latency counts from the schedule all the same. `timeout_s` counts from
    the start of one ask, `drain_s` from the last start: what is outstanding then is `unfinished`, as is
    what `stop` cuts off. `start_ns` makes another moment of the monotonic clock the start.
    """
    _check(target, asks)
    raise_file_limit(min(max_connections, len(asks)) + 256)
    run = _Run(target, asks, timeout_s, max_connections, drain_s)
    collecting = gc.isenabled()
    gc.disable()
    try:
        return run.go(progress, stop, start_ns)
    finally:
        run.close()
        if collecting:
            gc.enable()


def _check(target: Target, asks: Sequence[Ask]) -> None:
    if not asks:
        raise UsageError("there is nothing to send", "the trace is empty, or its limits leave no request")
    for index, ask in enumerate(asks):
        if not 0 <= ask.at_s < float("inf"):
            raise UsageError(f"request {index} is to be sent at `{ask.at_s}`", "times are 0 or more")
        if ask.max_tokens < 1 or not len(ask.prompt):
            raise UsageError(f"request {index} has no prompt or no output", "lengths are at least 1")
        if target.chat and not isinstance(ask.prompt, str):
            raise UsageError("a chat endpoint takes text, not token ids", "use `/v1/completions` or text")
        if ask.after is not None and not 0 <= ask.after < index:
            raise UsageError(f"request {index} follows `{ask.after}`", "it can only follow an earlier one")


class _Run:
    """The state of one run: asks not yet due, flights under way by descriptor, answers."""

    def __init__(
        self, target: Target, asks: Sequence[Ask], timeout_s: float, max_connections: int, drain_s: float
    ) -> None:
        self._encoder = Encoder(target)
        self._asks = asks
        self._timeout_s = timeout_s
        self._drain_s = drain_s
        self._clock = Clock()
        self._poller = make_poller()
        self._lines = Lines(resolve(target), self._clock, self._poller, limit=max_connections)
        self._answers: list[Answer | None] = [None] * len(asks)
        self._left = len(asks)
        self._order = sorted((ask.at_s, index) for index, ask in enumerate(asks) if ask.after is None)
        self._due = list(self._order)
        self._followers: dict[int, list[int]] = {}
        for index, ask in enumerate(asks):
            if ask.after is not None:
                self._followers.setdefault(ask.after, []).append(index)
        self._payloads: dict[int, bytes] = {}
        self._payload_bytes = 0
        self._prepared = 0
        self._begun = 0
        self._waiting: deque[Flight] = deque()
        self._flights: dict[int, Flight] = {}
        self._lag_s = array("f")
        self._blind = 0
        self._busy = False
        self._last_start_s = 0.0
        self._reporter = Reporter(len(asks))

    def close(self) -> None:
        """Close all sockets."""
        self._lines.close()
        self._poller.close()

    def go(
        self,
        progress: Callable[[Progress], None] | None,
        stop: Callable[[], bool] | None,
        start_ns: int | None,
    ) -> LoadResult:
        """Open spare connections, start the clock, and turn until every ask has its outcome."""
        while self._prepare():
            pass
        self._open_spare()
        self._await_start(start_ns)
        meter = Meter()
        tick_s = 0.0
        while self._left:
            now_s = self._clock.now()
            if now_s >= tick_s:
                tick_s = now_s + _TICK_S
                self._tick(now_s)
                if progress is not None:
                    self._reporter.report(progress, now_s, len(self._flights))
                if self._overdue(now_s) or (stop is not None and stop()):
                    self._cut(now_s)
                    break
            self._turn(tick_s)
        duration_s = max(self._clock.now(), 1e-9)
        effort = meter.read(duration_s, self._clock.step_s, self._blind)
        answers = tuple(answer for answer in self._answers if answer is not None)
        instrument = read_instrument(answers, self._lag_s, [effort])
        return LoadResult(answers, instrument, self._clock.started_unix_s, duration_s, self._lag_s)

    def _await_start(self, start_ns: int | None) -> None:
        if start_ns is not None:
            time.sleep(max(start_ns - time.monotonic_ns(), 0) / 1e9)
        del self._lag_s[:]
        self._clock.restart(start_ns)

    def _tick(self, now_s: float) -> None:
        self._clock.sync()
        self._stock(now_s)
        for flight in [flight for flight in self._flights.values() if flight.deadline_s <= now_s]:
            self._end(flight, "timeout", now_s)

    def _stock(self, now_s: float) -> None:
        """As many spare connections as requests are scheduled within the next moment."""
        last = bisect.bisect_right(self._order, (now_s + _SPARE_S, len(self._asks)))
        self._lines.stock(last - bisect.bisect_right(self._order, (now_s, -1)))

    def _open_spare(self) -> None:
        until_s = self._clock.now() + min(_OPEN_S, self._timeout_s)
        self._stock(0.0)
        while not self._lines.stocked and self._clock.now() < until_s:
            for fd, mask in self._poller.wait(_TICK_S):
                self._event(fd, mask)

    def _overdue(self, now_s: float) -> bool:
        return not self._due and now_s > self._last_start_s + self._drain_s

    def _prepare(self, within_s: float = math.inf) -> bool:
        """Encode one more request ahead of its time; False where enough are, or it would take too long."""
        self._prepared = max(self._prepared, self._begun)
        if self._prepared >= len(self._order) or self._payload_bytes >= _AHEAD_BYTES:
            return False
        index = self._order[self._prepared][1]
        if len(self._asks[index].prompt) * _ENCODE_S > within_s / 2:
            return False
        self._prepared += 1
        payload = self._encoder.encode(self._asks[index])
        self._payloads[index] = payload
        self._payload_bytes += len(payload)
        return True

    def _payload(self, index: int) -> bytes | None:
        """What was prepared for an ask, once."""
        payload = self._payloads.pop(index, None)
        self._payload_bytes -= len(payload or b"")
        return payload

    def _turn(self, tick_s: float) -> None:
        """Start what is due, then wait for data until the next start or tick, and read it."""
        now_s = self._start_due()
        wait_s = min(self._due[0][0], tick_s) - now_s if self._due else tick_s - now_s
        if wait_s > _IDLE_S and self._prepare(wait_s):
            wait_s = 0.0
        if self._busy and wait_s > _NAP_S:
            time.sleep(_NAP_S)
            wait_s -= _NAP_S
        events = self._poller.wait(max(wait_s, 0.0))
        self._busy = bool(events) and bool(self._lag_s)
        for fd, mask in events:
            now_s = self._event(fd, mask)
            if self._due and self._due[0][0] <= now_s:
                self._start_due()

    def _start_due(self) -> float:
        while self._waiting and self._launch(self._waiting[0]):
            self._waiting.popleft()
        now_s = self._clock.now()
        while self._due and self._due[0][0] <= now_s:
            scheduled_s, index = heapq.heappop(self._due)
            flight = Flight(index, self._asks[index], scheduled_s)
            self._begun += flight.ask.after is None
            if self._waiting or not self._launch(flight):
                flight.queued = True
                self._waiting.append(flight)
            now_s = self._clock.now()
        return now_s

    def _launch(self, flight: Flight) -> bool:
        """Send, or connect in order to; False where no connection may be opened."""
        now_s = self._clock.now()
        try:
            line = self._lines.take()
            if line is None:
                return False
            self._last_start_s = now_s
            flight.line = line
            flight.deadline_s = now_s + self._timeout_s
            self._flights[line.fd] = flight
            if line.ready:
                self._send(flight, line)
        except LineError as error:
            self._end(flight, str(error), now_s)
        return True

    def _send(self, flight: Flight, line: Line) -> None:
        payload = self._payload(flight.index) or self._encoder.encode(flight.ask)
        flight.connect_s, line.connect_s = line.connect_s, float("nan")
        flight.sent_s = self._clock.now()
        line.send(payload)
        if line.blocked:
            self._lines.settle(line)

    def _event(self, fd: int, mask: int) -> float:
        """One socket has something; returns the time, for the caller to see what became due."""
        line = self._lines.by_fd.get(fd)
        now_s = self._clock.now()
        if line is None:
            return now_s
        flight = self._flights.get(fd)
        try:
            if mask & WRITE:
                line.advance()
                self._lines.settle(line)
            if mask & ~WRITE:
                self._read(line, flight, now_s)
            if flight is not None and flight.sent_s != flight.sent_s and line.ready:
                self._send(flight, line)
        except LineError as error:
            self._lose(line, flight, str(error), now_s)
        except MalformedError as error:
            self._lose(line, flight, "malformed", now_s, str(error))
        return now_s

    def _read(self, line: Line, flight: Flight | None, now_s: float) -> None:
        got = line.read()
        if got is None:
            self._lines.settle(line)
            return
        data, stamp_s = got
        lag_s = 0.0
        if stamp_s is None:
            stamp_s = now_s
        else:
            lag_s = now_s - stamp_s
            self._lag_s.append(lag_s)
        if flight is None:
            self._lines.drop(line)
            return
        reply = flight.reply
        if data:
            chunks = len(reply.stream.chunk_s)
            reply.feed(data, stamp_s)
            if lag_s > _BLIND_S and len(reply.stream.chunk_s) > chunks + 1:
                self._blind += len(reply.stream.chunk_s) - chunks - 1
        else:
            reply.close()
        if reply.complete:
            self._end(flight, flight.verdict(), stamp_s, keep=reply.keep_alive)
        elif not data:
            self._end(flight, "closed" if reply.untouched else "truncated", stamp_s)

    def _lose(self, line: Line, flight: Flight | None, error: str, now_s: float, detail: str = "") -> None:
        if flight is None:
            self._lines.drop(line)
        else:
            self._end(flight, error, now_s, detail)

    def _end(
        self, flight: Flight, error: str | None, end_s: float, detail: str = "", *, keep: bool = False
    ) -> None:
        """Give an ask its outcome, free its connection, and schedule what follows it."""
        line = flight.line
        if line is not None:
            del self._flights[line.fd]
            if keep:
                self._lines.give(line)
            else:
                self._lines.drop(line)
        self._payload(flight.index)
        self._settle(flight.answer(error, end_s, detail))
        now_s = self._clock.now()
        for follower in self._followers.get(flight.index, ()):
            heapq.heappush(self._due, (now_s + self._asks[follower].at_s, follower))

    def _settle(self, answer: Answer) -> None:
        self._answers[answer.index] = answer
        self._left -= 1
        self._reporter.note(answer)

    def _cut(self, now_s: float) -> None:
        """End what is outstanding; all that was not sent says so."""
        for flight in list(self._flights.values()):
            self._end(flight, "unfinished", now_s)
        for index, answer in enumerate(self._answers):
            if answer is None:
                ask = self._asks[index]
                self._settle(unsent(index, ask, ask.at_s if ask.after is None else float("nan")))
