"""From the options of `trtgate load` to the requests: whose lengths, sent when, for how long."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from trtgate.errors import UsageError
from trtgate.loads.arrivals import (
    Times,
    asks_from_columns,
    closed_loop,
    constant,
    gamma,
    poisson,
    replay,
    to_text,
)
from trtgate.loads.base import Ask

if TYPE_CHECKING:  # the readers take a second to import, which a load without a trace does not wait for
    from trtgate.traces.base import Trace

Arrivals = Literal["poisson", "constant", "gamma"]
GOALS = (
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "worst_gap_ms",
    "itl_mean_ms",
    "ttft_from_send_ms",
    "e2e_from_send_ms",
)
DEFAULT_FOR_S = 30.0
MOST_REQUESTS = 10_000_000
VOCAB = 1000  # ids below it exist in every real model
_STREAM_RATE = 50.0  # requests a second of one stream that a timed closed loop is stocked for
_MOST_STOCKED = 200_000
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Lengths:
    """Token counts drawn evenly from `low` to `high`, both included."""

    low: int
    high: int

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"

    def draw(self, count: int, seed: int) -> NDArray[np.int64]:
        """`count` lengths; shape (count,)."""
        return np.random.default_rng(seed).integers(self.low, self.high + 1, count)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Whose lengths: of a trace, times `scale`, or drawn; `speed_up` divides the gaps between its arrivals."""

    trace: Path | None
    trace_format: str | None
    scale: float
    speed_up: float
    prompt_tokens: Lengths
    output_tokens: Lengths

    def __str__(self) -> str:
        if self.trace is None:
            return f"prompts of {self.prompt_tokens}, answers of {self.output_tokens} tokens"
        return f"lengths of `{self.trace.name}`" + (f" times {self.scale:g}" if self.scale != 1 else "")

    def read(self) -> "Trace | None":
        """The trace in its new lengths; None where there is none."""
        if self.trace is None:
            return None
        from trtgate.traces import read_trace

        trace = read_trace(self.trace, format=self.trace_format)
        return trace if self.scale == 1 else trace.scaled(self.scale)


@dataclass(frozen=True, slots=True)
class Pace:
    """When to send: at `rate`, else when one of `streams` is free, else as the trace did."""

    rate: float | None
    arrivals: Arrivals
    burstiness: float
    streams: int | None
    requests: int | None
    for_s: float | None

    @property
    def timed_loop_s(self) -> float | None:
        """When a closed loop that has no number of requests is to be cut, in seconds."""
        return None if self.streams is None or self.requests is not None else self.for_s or DEFAULT_FOR_S


@dataclass(frozen=True, slots=True)
class Shape:
    """What was asked for; refuses what does not say when to send, or says it twice."""

    traffic: Traffic
    pace: Pace
    seed: int

    def __post_init__(self) -> None:
        pace = self.pace
        if pace.rate is not None and pace.streams is not None:
            raise UsageError("`--rate` and `--streams` exclude each other", "an open loop, or a closed one")
        if self.traffic.trace is None and pace.rate is None and pace.streams is None:
            raise UsageError("nothing says how much to send", "give `--rate`, `--streams` or `--trace`")
        if pace.streams is not None and pace.requests is not None and pace.for_s is not None:
            raise UsageError("a closed loop ends by `--requests` or by `--for`", "give one of them")


@dataclass(frozen=True, slots=True)
class Plan:
    """The requests, said in one line, and the trace that they came from, as its source describes itself."""

    asks: tuple[Ask, ...]
    said: str
    sources: tuple[dict[str, Any], ...] = ()


def parse_lengths(text: str) -> Lengths:
    """Read `200` or `100-300`."""
    match = re.fullmatch(r"(\d{1,8})(?:-(\d{1,8}))?", text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= low <= high:
        raise UsageError(f"`{text}` is not a number of tokens", "as in `--prompt-tokens 200` or `100-300`")
    return Lengths(low, high)


def parse_duration(text: str) -> float:
    """Read `30s`, `2m`, `1.5h` or plain seconds; returns seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None or not float(match[1]):
        raise UsageError(f"`--for {text}` is not a duration", "as in `--for 30s` or `--for 2m`")
    return float(match[1]) * _UNITS[match[2]]


def parse_goals(goals: Sequence[str]) -> dict[str, float]:
    """Read `ttft_ms=500,worst_gap_ms=200` into limits in ms; refuses what no single request has."""
    limits: dict[str, float] = {}
    for part in ",".join(goals).split(",") if goals else ():
        name, _, value = part.strip().partition("=")
        if name not in GOALS:
            raise UsageError(f"no goal can be set on `{name}`", f"known: {', '.join(GOALS)}")
        if not re.fullmatch(r"\d+(\.\d+)?", value) or not float(value):
            raise UsageError(f"`--goal {part}` is not a limit in ms", "as in `--goal ttft_ms=500`")
        limits[name] = float(value)
    return limits


def plan_load(shape: Shape, vocab: int, *, text: bool = False) -> Plan:
    """The requests of a shape, with token ids below `vocab`, or as text."""
    traffic, pace = shape.traffic, shape.pace
    trace = traffic.read()
    arrival_s = _arrivals(shape, trace)
    count = len(arrival_s)
    if trace is None:
        prompts, outputs = (
            traffic.prompt_tokens.draw(count, shape.seed),
            traffic.output_tokens.draw(count, shape.seed + 1),
        )
    else:  # from its start again where it is too short
        prompts, outputs = np.resize(trace.prompt_tokens, count), np.resize(trace.output_tokens, count)
    asks = asks_from_columns(arrival_s, prompts, outputs, vocab_size=vocab, seed=shape.seed)
    if pace.streams is not None:
        asks = closed_loop(asks, pace.streams)
    if text:
        asks = to_text(asks, seed=shape.seed)
    total = "" if pace.timed_loop_s else f", {int(outputs.sum())} tokens asked for"
    said = f"{_said(shape, count)}; {traffic}{total}; seed {shape.seed}"
    sources = () if trace is None else trace.sources
    return Plan(tuple(asks), said, tuple(source.model_dump(mode="json") for source in sources))


def _arrivals(shape: Shape, trace: "Trace | None") -> Times:
    """The times, cut after `--requests` and `--for`; all 0 for a closed loop."""
    pace = shape.pace
    if pace.streams is not None:
        stocked = min(pace.streams * (pace.timed_loop_s or 0.0) * _STREAM_RATE, _MOST_STOCKED)
        return np.zeros(pace.requests or max(int(stocked), pace.streams))
    if pace.rate is not None:
        times = _drawn(pace, pace.rate, shape.seed)
    else:
        times = replay(trace.arrival_s if trace else (), speed=shape.traffic.speed_up)
    times = times[: pace.requests]
    if pace.for_s is not None:
        times = times[times < pace.for_s]
    if not len(times):
        raise UsageError("no request arrives in that time", "give a longer `--for` or a higher `--rate`")
    return times


def _drawn(pace: Pace, rate: float, seed: int) -> Times:
    for_s, count = math.inf, pace.requests or 0
    if pace.requests is None:
        for_s = pace.for_s or DEFAULT_FOR_S
        mean = rate * for_s
        if mean > MOST_REQUESTS:
            raise UsageError(f"{mean:.0f} requests are too many for one run", "lower `--rate` or `--for`")
        # Eight standard deviations more than the mean, so that the time ends before the requests do.
        spare = 0.0 if pace.arrivals == "constant" else 8 * math.sqrt(mean / min(pace.burstiness, 1.0)) + 8
        count = max(math.ceil(mean + spare), 1)
    if pace.arrivals == "constant":
        times = constant(count, rate)
    elif pace.arrivals == "gamma":
        times = gamma(count, rate, burstiness=pace.burstiness, seed=seed)
    else:
        times = poisson(count, rate, seed=seed)
    return times[times < for_s]


def _said(shape: Shape, count: int) -> str:
    pace = shape.pace
    if pace.streams is not None:
        much = f"{count} requests" if pace.timed_loop_s is None else f"{pace.timed_loop_s:g} s"
        return f"closed loop, {pace.streams} at a time, {much}"
    if pace.rate is not None:
        burst = f" (burstiness {pace.burstiness:g})" if pace.arrivals == "gamma" else ""
        return f"{pace.arrivals} arrivals{burst}, {pace.rate:g} requests/s, {count} requests"
    fast = f", {shape.traffic.speed_up:g} times as fast" if shape.traffic.speed_up != 1 else ""
    return f"arrivals of the trace{fast}, {count} requests"
