"""What the times of a run mean: every metric by its formula (`docs/metrics.md`), of complete answers."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trtgate.errors import InvalidMeasurementError, UsageError
from trtgate.loads.base import Answer, LoadResult
from trtgate.loads.sketch import ERROR, Sketch
from trtgate.record import Record

EXACT_UP_TO = 10_000_000
PLACES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
STALL_MS = 200.0
_RELIABLE = 0.8
_PER_REQUEST = {
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "worst_gap_ms",
    "ttft_from_send_ms",
    "e2e_from_send_ms",
    "itl_mean_ms",
}

Samples = dict[str, NDArray[np.float64]]


def quantile(values: ArrayLike, p: float) -> float:
    """Order statistic number ceil(p*N) of N values; `InvalidMeasurementError` where N is 0 or one is nan."""
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        raise InvalidMeasurementError("a quantile of no samples was asked for", "no request was completed")
    if np.isnan(data).any():
        raise InvalidMeasurementError("a sample is not a number", "this is a defect of the measurement")
    place = min(max(math.ceil(round(p * data.size, 9)), 1), data.size) - 1
    return float(np.partition(data, place)[place])


def samples(result: LoadResult) -> Samples:
    """The samples of every metric in ms: one a request, `itl_ms` one a gap, `itl_token_ms` one a token.

    Latency counts from the scheduled time, in `..._from_send_ms` from the send. All arrays are flat.
    """
    return samples_of([answer for answer in result.answers if answer.ok])


def samples_of(done: Sequence[Answer]) -> Samples:
    """As `samples`, of complete answers."""
    first, last = _column(done, "first_s"), _column(done, "last_s")
    scheduled, sent = _column(done, "scheduled_s"), _column(done, "sent_s")
    gaps = [np.diff(np.frombuffer(answer.chunk_s, dtype=np.float64)) for answer in done]
    weights = [np.frombuffer(answer.chunk_tokens, dtype=np.uint16)[1:] for answer in done]
    pooled = _join(gaps)
    tokens = _join(weights).astype(np.int64)
    return {
        "ttft_ms": (first - scheduled) * 1e3,
        "ttft_from_send_ms": (first - sent) * 1e3,
        "itl_ms": pooled * 1e3,
        "itl_token_ms": np.repeat(pooled / np.maximum(tokens, 1), tokens) * 1e3,
        "itl_mean_ms": np.array([gap.mean() for gap in gaps if gap.size]) * 1e3,
        "tpot_ms": np.array(list(_tpot_s(done))) * 1e3,
        "worst_gap_ms": np.array([gap.max() for gap in gaps if gap.size]) * 1e3,
        "e2e_ms": (last - scheduled) * 1e3,
        "e2e_from_send_ms": (last - sent) * 1e3,
    }


def _tpot_s(done: Sequence[Answer]) -> Iterator[float]:
    """(last - first) / (tokens - tokens of the first chunk), of answers that have more than one chunk."""
    for answer in done:
        rest = answer.tokens - answer.chunk_tokens[0]
        if len(answer.chunk_s) > 1 and rest > 0:
            yield (answer.last_s - answer.first_s) / rest


def _column(done: Sequence[Answer], name: str) -> NDArray[np.float64]:
    return np.array([getattr(answer, name) for answer in done], dtype=np.float64)


def _join(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0)


class Spread(Record):
    """A metric over its `n` samples; quantile p is order statistic ceil(p*n), with n*(1-p) samples above.

    `error` is the largest relative error of a quantile: 0 where exact.
    """

    n: int
    mean: float
    p50: float
    p95: float
    p99: float
    p999: float
    max: float
    error: float


class Goodput(Record):
    """The share of all requests that completed within every limit, with a 95 % interval (Wilson 1927)."""

    limits_ms: dict[str, float]
    within: int
    share: float
    low: float
    high: float


class Stalls(Record):
    """Gaps above `limit_ms` inside complete answers, and how many answers have one."""

    limit_ms: float
    gaps: int
    requests: int


class Summary(Record):
    """One run in numbers: counts of all requests, metrics of complete ones; one without samples is absent.

    `unequal` counts complete answers of another length than asked for; below 0.8 `chunks_per_token` gaps do
    not tell of tokens, which `token_gaps_reliable` says.
    """

    asked: int
    sent: int
    complete: int
    failed: int
    errors: dict[str, int]
    queued: int
    unequal: int
    prompt_tokens: int
    tokens: int
    tokens_sources: dict[str, int]
    chunks_per_token: float
    token_gaps_reliable: bool
    requests_per_s: float
    tokens_per_s: float
    metrics: dict[str, Spread]
    stalls: Stalls
    goodput: Goodput | None
    instrument: dict[str, float | int | str]
    started_unix_s: float
    duration_s: float


def spread(values: ArrayLike) -> Spread:
    """The spread of samples, exact up to ten million, by a sketch above; `InvalidMeasurementError` of none."""
    data = np.asarray(values, dtype=np.float64)
    if data.size > EXACT_UP_TO:
        return spread_of(Sketch.of(data))
    data = np.sort(data)
    at = {name: quantile(data, p) for name, p in PLACES.items()}
    return Spread(n=data.size, mean=float(data.mean()), max=float(data[-1]), error=0.0, **at)


def spread_of(sketch: Sketch) -> Spread:
    """The spread of what went into a sketch."""
    at = {name: sketch.quantile(p) for name, p in PLACES.items()}
    return Spread(n=sketch.n, mean=sketch.total / sketch.n, max=sketch.max, error=ERROR, **at)


def split_result(result: LoadResult, group: Callable[[Answer], str]) -> dict[str, LoadResult]:
    """The answers of each group as a result of its own, with the error bar of the whole; e.g. by tag or length."""
    groups: dict[str, list[Answer]] = {}
    for answer in result.answers:
        groups.setdefault(group(answer), []).append(answer)
    return {name: replace(result, answers=tuple(groups[name])) for name in sorted(groups)}


def summary(
    result: LoadResult, limits_ms: Mapping[str, float] | None = None, *, stall_ms: float = STALL_MS
) -> Summary:
    """One run in numbers; `limits_ms` of metrics with one sample a request, as `ttft_ms`, give goodput."""
    done = [answer for answer in result.answers if answer.ok]
    got = samples(result)
    tokens = sum(answer.tokens for answer in done)
    chunks = sum(len(answer.chunk_s) for answer in done)
    return Summary(
        asked=len(result.answers),
        sent=sum(answer.sent_s == answer.sent_s for answer in result.answers),
        complete=len(done),
        failed=len(result.answers) - len(done),
        errors=dict(Counter(answer.error for answer in result.answers if answer.error is not None)),
        queued=result.instrument.queued,
        unequal=sum(answer.tokens != answer.max_tokens for answer in done),
        prompt_tokens=sum(answer.prompt_tokens or 0 for answer in done),
        tokens=tokens,
        tokens_sources=dict(Counter(str(answer.tokens_source) for answer in done)),
        chunks_per_token=chunks / tokens if tokens else 0.0,
        token_gaps_reliable=tokens > 0 and chunks / tokens >= _RELIABLE,
        requests_per_s=len(done) / result.duration_s,
        tokens_per_s=tokens / result.duration_s,
        metrics={name: spread(values) for name, values in got.items() if values.size},
        stalls=Stalls(
            limit_ms=stall_ms,
            gaps=int((got["itl_ms"] > stall_ms).sum()),
            requests=int((got["worst_gap_ms"] > stall_ms).sum()),
        ),
        goodput=goodput(result, limits_ms) if limits_ms else None,
        instrument=asdict(result.instrument),
        started_unix_s=result.started_unix_s,
        duration_s=result.duration_s,
    )


def goodput(result: LoadResult, limits_ms: Mapping[str, float]) -> Goodput:
    """The share of all requests, failed ones included, that completed within every limit."""
    unknown = set(limits_ms) - _PER_REQUEST
    if unknown:
        raise UsageError(
            f"no limit on `{min(unknown)}` of a request", f"known: {', '.join(sorted(_PER_REQUEST))}"
        )
    within = sum(all(_of(answer, name) <= limits_ms[name] for name in limits_ms) for answer in result.answers)
    low, high = _wilson(within, len(result.answers))
    share = within / len(result.answers)
    return Goodput(limits_ms=dict(limits_ms), within=within, share=share, low=low, high=high)


def _of(answer: Answer, name: str) -> float:
    """A metric of one request; infinite where it failed, 0 where it has none (one token has no gap)."""
    if not answer.ok:
        return math.inf
    values = samples_of((answer,))[name]
    return float(values[0]) if values.size else 0.0


def _wilson(hits: int, n: int) -> tuple[float, float]:
    z = 1.959963984540054
    middle = (hits + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(hits * (n - hits) / n + z * z / 4)
    return max(middle - half, 0.0), min(middle + half, 1.0)
