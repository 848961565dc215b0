"""What readers give back: traces (what was asked), steps (what a runtime did), ranges (bucketed counts)."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator

from trtgate.errors import TraceError, UsageError
from trtgate.record import Record

TimeUnit = Literal["timestamp", "s", "ms", "none"]
COLUMNS_SPELLING = "time=NAME,prompt=NAME,output=NAME"
MAX_TOKENS = 100_000_000  # longer prompts or answers are typing errors: no model holds them
LATEST_US = 4.5e18  # keeps differences of times within 64 bits
BLOCK_ROWS = (
    1 << 16
)  # what is computed block by block stays in the cache, and needs no memory beside the columns


class TraceSource(BaseModel):
    """Where rows came from and what became of each: `read` is always `kept` plus all that was `dropped`."""

    # a Record in all but its base, whose method `read` the field would hide
    model_config = Record.model_config

    name: str
    sha256: str
    format: str
    read: int
    kept: int
    dropped: dict[str, int] = Field(default_factory=dict)
    span_s: float
    time_unit: TimeUnit
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _all_rows_are_accounted_for(self) -> Self:
        if min(self.read, self.kept, *self.dropped.values()) < 0:
            raise ValueError("row counts cannot be negative")
        if self.read != self.kept + sum(self.dropped.values()):
            raise ValueError(f"{self.read} rows read, but {self.kept} kept and {self.dropped} dropped")
        return self

    def noted(self, note: str) -> "TraceSource":
        """Add one note."""
        return self.model_copy(update={"notes": (*self.notes, note)})


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Names that the user gives to the three columns of a plain table; `time` is None for a length list."""

    time: str | None
    prompt_tokens: str
    output_tokens: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `time=NAME,prompt=NAME,output=NAME`, as the command line spells it; `time` may be left out."""
        pairs = dict(part.partition("=")[::2] for part in text.split(","))
        pairs = {key.strip(): name.strip() for key, name in pairs.items()}
        if not {"prompt", "output"} <= pairs.keys() <= {"time", "prompt", "output"} or not all(
            pairs.values()
        ):
            raise UsageError(f"`{text}` does not name the columns", f"write `{COLUMNS_SPELLING}`")
        return cls(pairs.get("time"), pairs["prompt"], pairs["output"])


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the user may say about a file that the file does not say itself.

    `time_unit` overrides the unit of numeric times. `zero_output` says whether an answer of no tokens is a
    failed request (`drop`) or counts as one token (`one`). `seed` drives sampled formats, `draft_len` is the
    number of draft tokens a request, `metric` the name of a Prometheus histogram.
    """

    columns: ColumnNames | None = None
    time_unit: Literal["s", "ms"] | None = None
    zero_output: Literal["drop", "one"] = "drop"
    seed: int = 0
    draft_len: int = 0
    metric: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests in order of arrival, as three columns of equal length that cannot be written to.

    `arrival_s` counts from the first arrival and never falls; token counts are at least 1.
    """

    arrival_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    sources: tuple[TraceSource, ...]

    def __post_init__(self) -> None:
        _freeze(self.arrival_s, self.prompt_tokens, self.output_tokens)
        if not len(self):
            raise TraceError("the trace has no requests", "choose a longer window or another file")
        if self.arrival_s[0] != 0 or falls(self.arrival_s):
            raise TraceError("arrivals must start at 0 and never fall", "sort the requests by time")
        if min(self.prompt_tokens.min(), self.output_tokens.min()) < 1:
            raise TraceError("prompts and answers must have at least 1 token", "drop the empty requests")

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return float(self.arrival_s[-1])

    @property
    def rate(self) -> float:
        """Requests a second over the span; 0 where all arrive at once, as in a length list."""
        return (len(self) - 1) / self.span_s if self.span_s > 0 else 0.0

    @property
    def digest(self) -> str:
        """The sha256 over the bytes of the three columns (little endian), in hexadecimal."""
        whole = hashlib.sha256()
        whole.update(self.arrival_s.astype("<f8").tobytes())
        whole.update(self.prompt_tokens.astype("<i8").tobytes())
        whole.update(self.output_tokens.astype("<i8").tobytes())
        return whole.hexdigest()

    def scaled(self, factor: float) -> "Trace":
        """Lengths times `factor`, rounded up, at least 1; arrivals stay."""
        _require_positive(factor, "scale")
        prompt, output = (_times(column, factor) for column in (self.prompt_tokens, self.output_tokens))
        return replace(
            self, prompt_tokens=prompt, output_tokens=output, sources=self._noted(f"lengths times {factor:g}")
        )

    def sped_up(self, factor: float) -> "Trace":
        """Divide the gaps between arrivals by `factor`; lengths stay."""
        _require_positive(factor, "speed-up")
        return replace(
            self, arrival_s=self.arrival_s / factor, sources=self._noted(f"sped up {factor:g} times")
        )

    def between(self, start_s: float, end_s: float) -> "Trace":
        """Keep the requests with `start_s` <= arrival < `end_s`, counted anew from the first of them."""
        first, last = np.searchsorted(self.arrival_s, (start_s, end_s))
        if first >= last:
            raise TraceError(
                f"no request arrives from {start_s:g} s to {end_s:g} s", f"the trace spans {self.span_s:g} s"
            )
        return self._rows(int(first), int(last))

    def split(self, fraction: float) -> "tuple[Trace, Trace]":
        """Cut at `fraction` of the span into an earlier and a later part; refuses an empty part."""
        if not 0 < fraction < 1:
            raise TraceError(f"`{fraction:g}` is not a fraction to split at", "give a number between 0 and 1")
        cut = int(np.searchsorted(self.arrival_s, fraction * self.span_s))
        if self.span_s == 0:
            cut = int(fraction * len(self))
        if not 0 < cut < len(self):
            raise TraceError(f"a split at {fraction:g} leaves a part without requests", "give a longer trace")
        return self._rows(0, cut), self._rows(cut, len(self))

    def clipped(self, max_seq_len: int) -> "Trace":
        """Make prompt and answer fit `max_seq_len`: the answer is cut first, to 1, then the prompt."""
        if max_seq_len < 2:
            raise TraceError(f"`{max_seq_len}` tokens hold no request", "a prompt and an answer need 2")
        prompt = np.minimum(self.prompt_tokens, max_seq_len - 1)
        output = np.minimum(self.output_tokens, max_seq_len - prompt)
        cut = int(np.count_nonzero((prompt < self.prompt_tokens) | (output < self.output_tokens)))
        if not cut:
            return self
        note = f"{cut} of {len(self)} requests cut to {max_seq_len} tokens"
        return replace(self, prompt_tokens=prompt, output_tokens=output, sources=self._noted(note))

    def _rows(self, first: int, last: int) -> "Trace":
        arrival_s = self.arrival_s[first:last] - self.arrival_s[first]
        return Trace(
            arrival_s, self.prompt_tokens[first:last], self.output_tokens[first:last], sources=self.sources
        )

    def _noted(self, note: str) -> tuple[TraceSource, ...]:
        return tuple(source.noted(note) for source in self.sources)


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """What a runtime really did: one row an iteration that had work, in the order of the log.

    `decode` tells iterations of generation requests only (their `size` counts requests) from those with
    context tokens (their `size` counts tokens). `size` is without padding, `padded` with it or 0 where
    unknown, `step_ms` nan where unknown. Columns have equal length and cannot be written to.
    """

    iteration: NDArray[np.int64]
    rank: NDArray[np.int16]
    decode: NDArray[np.bool_]
    size: NDArray[np.int32]
    padded: NDArray[np.int32]
    step_ms: NDArray[np.float32]
    sources: tuple[TraceSource, ...]

    def __post_init__(self) -> None:
        _freeze(self.iteration, self.rank, self.decode, self.size, self.padded, self.step_ms)

    def __len__(self) -> int:
        return len(self.size)

    @property
    def decode_size(self) -> NDArray[np.int32]:
        """Requests of each iteration without context tokens."""
        return self.size[self.decode]

    @property
    def tokens_size(self) -> NDArray[np.int32]:
        """Tokens of each iteration with context tokens."""
        return self.size[~self.decode]


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """A histogram that came in buckets: `count[i]` values lie in (`low[i]`, `high[i]`].

    `high` of the last range may be infinite; `total` is the sum of all values, nan where unknown.
    """

    metric: str
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    count: NDArray[np.int64]
    total: float
    sources: tuple[TraceSource, ...]

    def __post_init__(self) -> None:
        _freeze(self.low, self.high, self.count)

    def __len__(self) -> int:
        return int(self.count.sum())


class Reader(Protocol):
    """One format: knows a file by its first bytes and reads it, counting every row that it leaves out."""

    @property
    def name(self) -> str:
        """The word for `--format`."""

    def sniff(self, head: bytes, filename: str) -> bool:
        """Whether the first bytes (decompressed, without byte-order mark) look like this format."""

    def read(self, path: Path, options: ReadOptions) -> Trace | Steps | Ranges:
        """Read the whole file; `TraceError` where nothing can be read from it."""


@runtime_checkable
class Streaming(Protocol):
    """A reader of iterations that can give them in parts."""

    def stream(self, path: Path, options: ReadOptions) -> Iterator[Steps]:
        """Read the file in parts of bounded size, of which the last bears the source."""


def falls(values: NDArray[Any]) -> bool:
    """Whether any value is below the one before it."""
    starts = range(0, len(values), BLOCK_ROWS)
    blocks = (values[start : start + BLOCK_ROWS + 1] for start in starts)
    return any(bool(np.any(block[1:] < block[:-1])) for block in blocks)


def _freeze(*columns: NDArray[np.generic]) -> None:
    if len({len(column) for column in columns}) != 1:
        raise TraceError(
            f"columns have {[len(column) for column in columns]} rows", "give columns of one length"
        )
    for column in columns:
        column.flags.writeable = False


def _times(column: NDArray[np.int64], factor: float) -> NDArray[np.int64]:
    # the small amount taken off keeps 10 * 1.1 at 11: the product is 11.000000000000002
    longer: NDArray[np.int64] = np.maximum(np.ceil(column * factor - 1e-9), 1).astype(np.int64)
    return longer


def _require_positive(factor: float, what: str) -> None:
    if not 0 < factor < float("inf"):
        raise TraceError(f"`{factor:g}` is not a {what} factor", "give a number above 0")
