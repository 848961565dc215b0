"""How many steps of each size a service runs: two histograms, one for each kind of graph."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from trtgate.errors import UsageError
from trtgate.record import Record
from trtgate.traces.base import Ranges, Steps, TraceSource

Kind = Literal["decode", "tokens"]
Origin = Literal["simulated", "recorded", "mixed"]


class Limits(Record):
    """What a replica may hold at once, as far as it decides the sizes of steps.

    `kv_tokens` is the room of the KV cache, None for no bound. A generation request takes `1 + draft_len`
    token slots of a step and yields `1 + accepted_len` tokens (a mean over many steps). `replicas` share the
    trace in turn.
    """

    max_batch_size: int = Field(ge=1)
    max_num_tokens: int = Field(ge=1)
    max_seq_len: int = Field(ge=2)
    chunked_prefill: bool = True
    kv_tokens: int | None = Field(default=None, ge=2)
    draft_len: int = Field(default=0, ge=0)
    accepted_len: float = Field(default=0.0, ge=0)
    replicas: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.accepted_len > self.draft_len:
            raise ValueError(f"{self.accepted_len:g} draft tokens cannot be accepted out of {self.draft_len}")
        if self.max_num_tokens < 1 + self.draft_len:
            raise ValueError(
                f"max_num_tokens {self.max_num_tokens} is below the {1 + self.draft_len} of a request"
            )
        return self

    @property
    def max_decode_size(self) -> int:
        """Requests that a step can hold: the batch limit, or as many as share the token limit."""
        return min(self.max_batch_size, self.max_num_tokens // (1 + self.draft_len))

    @property
    def max_tokens_size(self) -> int:
        """Tokens that one step can reach: the token limit, or all requests at their full length."""
        return min(self.max_num_tokens, self.max_batch_size * (self.max_seq_len - 1))


class Bins(Record):
    """Counts of steps by size, ascending by (`low`, `high`), which are equal in exact data.

    In a bin of bucketed data each step has a size in `low..high`, both included, that is not known closer.
    """

    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _sorted(self) -> Self:
        if not len(self.low) == len(self.high) == len(self.steps):
            raise ValueError("bins need one low, one high and one count each")
        pairs = list(zip(self.low, self.high, strict=True))
        if any(low < 1 or high < low for low, high in pairs):
            raise ValueError("bins have 1 <= low <= high")
        if any(b <= a for a, b in pairwise(pairs)):
            raise ValueError("bins are ascending, each once")
        if any(count < 1 for count in self.steps):
            raise ValueError("bins hold at least one step each")
        return self

    @classmethod
    def from_counts(cls, counts: NDArray[np.int64]) -> Self:
        """Exact bins; `counts[n]` is the number of steps of size n, `counts[0]` is left out."""
        sizes = np.flatnonzero(counts[1:]) + 1
        held = tuple(sizes.tolist())
        return cls(low=held, high=held, steps=tuple(counts[sizes].tolist()))

    @property
    def exact(self) -> bool:
        """Whether every size is known."""
        return self.low == self.high

    @property
    def total(self) -> int:
        """The number of steps."""
        return sum(self.steps)

    def quantile(self, share: float) -> int:
        """The smallest size (upper ends) that `share` of the steps do not exceed; 0 where there are none."""
        if not self.steps:
            return 0
        order = np.argsort(self.high, kind="stable")
        running = np.cumsum(np.asarray(self.steps)[order])
        place = int(np.searchsorted(running, share * running[-1]))
        return int(self.high[order[min(place, len(order) - 1)]])


class Histogram(Record):
    """Steps by size: `decode` by generation requests, `tokens` (steps with context) by tokens, after reuse.

    `requests` were served in a simulation; `refused` counts those that no step could hold, by reason. `drain_s` is how
    long after the last arrival the last replica was done: far beyond the longest answer, it could not keep up.
    """

    schema_version: Literal[1] = 1
    decode: Bins
    tokens: Bins
    sources: tuple[TraceSource, ...]
    origin: Origin
    limits: Limits | None = None
    requests: int = Field(default=0, ge=0)
    refused: dict[str, int] = Field(default_factory=dict)
    drain_s: float | None = None

    def bins(self, kind: Kind) -> Bins:
        """The bins of one kind of graph."""
        return self.decode if kind == "decode" else self.tokens


def from_steps(steps: Steps) -> Histogram:
    """The histogram of recorded iterations, exact."""
    return Histogram(
        decode=_counted(steps.decode_size),
        tokens=_counted(steps.tokens_size),
        sources=combine_sources(steps.sources),
        origin="recorded",
    )


def from_ranges(ranges: Ranges, kind: Kind, ceiling: int) -> Histogram:
    """A bucketed series as bins of one kind; open ends reach to `ceiling`, counts of size 0 are left out."""
    bins: dict[tuple[int, int], int] = {}
    for below, high, count in zip(ranges.low, ranges.high, ranges.count, strict=True):
        low = max(int(np.floor(max(below, 0.0))) + 1, 1)
        top = ceiling if np.isinf(high) else int(np.floor(high))
        if count > 0 and top >= 1:
            pair = (low, max(top, low))
            bins[pair] = bins.get(pair, 0) + int(count)
    held = _bins(bins)
    empty = Bins()
    return Histogram(
        decode=held if kind == "decode" else empty,
        tokens=held if kind == "tokens" else empty,
        sources=combine_sources(ranges.sources),
        origin="recorded",
    )


def merge(*histograms: Histogram) -> Histogram:
    """The sum of histograms; the same bytes for any grouping and order of the same parts."""
    if not histograms:
        raise UsageError("there are no histograms to merge", "give at least one")
    origins = {histogram.origin for histogram in histograms}
    limits = [histogram.limits for histogram in histograms]
    refused: dict[str, int] = {}
    for histogram in histograms:
        for reason, count in histogram.refused.items():
            refused[reason] = refused.get(reason, 0) + count
    return Histogram(
        decode=_added(histogram.decode for histogram in histograms),
        tokens=_added(histogram.tokens for histogram in histograms),
        sources=combine_sources(source for histogram in histograms for source in histogram.sources),
        origin=histograms[0].origin if len(origins) == 1 else "mixed",
        limits=limits[0] if all(limit == limits[0] for limit in limits) else None,
        requests=sum(histogram.requests for histogram in histograms),
        refused=dict(sorted(refused.items())),
        drain_s=max((part.drain_s for part in histograms if part.drain_s is not None), default=None),
    )


def combine_sources(sources: Iterable[TraceSource]) -> tuple[TraceSource, ...]:
    """Parts of one file as one source (rows added, longest span, all notes), by name and digest."""
    groups: dict[tuple[str, str, str, str], list[TraceSource]] = {}
    for source in sources:
        key = (source.name, source.sha256, source.format, source.time_unit)
        groups.setdefault(key, []).append(source)
    return tuple(_one_source(groups[key]) for key in sorted(groups))


def _one_source(parts: list[TraceSource]) -> TraceSource:
    dropped: dict[str, int] = {}
    for part in parts:
        for reason, count in part.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    return TraceSource(
        name=parts[0].name,
        sha256=parts[0].sha256,
        format=parts[0].format,
        read=sum(part.read for part in parts),
        kept=sum(part.kept for part in parts),
        dropped=dict(sorted(dropped.items())),
        span_s=max(part.span_s for part in parts),
        time_unit=parts[0].time_unit,
        notes=tuple(sorted({note for part in parts for note in part.notes})),
    )


def _counted(sizes: NDArray[np.int32]) -> Bins:
    held, steps = np.unique(sizes[sizes > 0], return_counts=True)
    exact = tuple(held.tolist())
    return Bins(low=exact, high=exact, steps=tuple(steps.tolist()))


def _added(parts: Iterable[Bins]) -> Bins:
    total: dict[tuple[int, int], int] = {}
    for part in parts:
        for low, high, steps in zip(part.low, part.high, part.steps, strict=True):
            total[low, high] = total.get((low, high), 0) + steps
    return _bins(total)


def _bins(total: dict[tuple[int, int], int]) -> Bins:
    pairs = sorted(total)
    return Bins(
        low=tuple(low for low, _ in pairs),
        high=tuple(high for _, high in pairs),
        steps=tuple(total[pair] for pair in pairs),
    )
