"""From blocks of parsed rows to a trace: every row is kept, or dropped under a reason that is counted."""

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtgate.errors import TraceError
from trtgate.traces.base import (
    BLOCK_ROWS,
    LATEST_US,
    MAX_TOKENS,
    ReadOptions,
    TimeUnit,
    Trace,
    TraceSource,
    falls,
)

FINE, NO_TIME, BAD_TIME, NO_COUNT, BAD_COUNT, NEGATIVE, ABSURD, EMPTY, NO_PROMPT, NO_OUTPUT = range(10)
REASONS = (
    "fine",
    "time missing",
    "time not readable",
    "token count missing",
    "token count not readable",
    "token count negative",
    f"token count above {MAX_TOKENS}",
    "no prompt and no output tokens",
    "no prompt tokens",
    "no output tokens",
)
_FIRST_ROWS = 1 << 14
_MOST_EXPECTED_ROWS = 1 << 26  # a damaged file may announce any number
OTHER_SHAPE = "row of another shape"
CUT_OFF = "last line cut off"
SCALES: dict[TimeUnit, float] = {"timestamp": 0.0, "s": 1e6, "ms": 1e3, "none": 1.0}  # microseconds


Counts = NDArray[np.float64] | NDArray[np.int64] | NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Rows as parsed: times in microseconds, token counts as written (nan where unreadable), first complaint.

    `time_us` is None for length lists. `left_out` counts, by reason, rows that are not in the columns.
    """

    time_us: NDArray[np.int64] | None
    prompt: Counts
    output: Counts
    reason: NDArray[np.uint8]
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """The rows of a block that can be used, and how many were dropped for which reason."""

    time_us: NDArray[np.int64]
    prompt: Counts
    output: Counts
    dropped: Counter[str]


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """The file that rows come from: its digest may still be on its way."""

    path: Path
    format: str
    unit: TimeUnit
    sha256: Future[str]
    notes: tuple[str, ...] = ()
    expected_rows: int = 0  # a guess, for which room is made at once


def numeric_time_us(
    values: NDArray[np.float64], unit: TimeUnit
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Turn seconds or milliseconds into microseconds, with a reason where the value is no time."""
    from trtgate.traces.scantable import scale_times

    time_us = np.empty(len(values), np.int64)
    if scale_times(values, SCALES[unit], time_us) == 0:
        return time_us, np.zeros(len(values), np.uint8)
    fine = np.abs(values) * SCALES[unit] < LATEST_US
    return np.where(fine, time_us, 0), np.where(fine, FINE, BAD_TIME).astype(np.uint8)


def select(block: Block, options: ReadOptions) -> Kept:
    """Drop the rows that cannot be used."""
    prompt, output, reason = block.prompt, block.output, block.reason
    if options.zero_output == "one":
        output = np.where(output == 0, 1, output)
    time_us = np.zeros(len(prompt), np.int64) if block.time_us is None else block.time_us
    if not len(prompt) or not (reason.any() or not _all_usable(prompt) or not _all_usable(output)):
        return Kept(time_us, prompt, output, block.left_out)
    reason = _complaints(prompt, output, reason)
    fine = reason == FINE
    counts = np.bincount(reason, minlength=len(REASONS))
    dropped = Counter({REASONS[code]: int(n) for code, n in enumerate(counts) if code != FINE and n})
    return Kept(time_us[fine], prompt[fine], output[fine], dropped + block.left_out)


def assemble(parts: Iterable[Kept], origin: Origin) -> Trace:
    """Join the parts of a file into one trace in order of arrival; refuses one without a row to keep."""
    dropped: Counter[str] = Counter()
    columns = _joined(parts, dropped, origin.expected_rows)
    if not len(columns[0]):
        raise nothing_kept(origin.path, dropped)
    time_us, prompt, output = columns
    notes = origin.notes
    if falls(time_us):
        late = np.count_nonzero(time_us < np.maximum.accumulate(time_us))
        notes = (*notes, counted(int(late), "row was", "rows were") + " out of order; sorted by time")
        order = np.argsort(time_us, kind="stable")
        time_us, prompt, output = time_us[order], prompt[order], output[order]
    regular = _regular(time_us)
    arrival_s = _seconds(time_us)
    source = TraceSource(
        name=origin.path.name,
        sha256=origin.sha256.result(),
        format=origin.format,
        read=len(time_us) + dropped.total(),
        kept=len(time_us),
        dropped=dict(sorted(dropped.items())),
        span_s=float(arrival_s[-1]),
        time_unit=origin.unit,
        notes=(*notes, *regular),
    )
    return Trace(arrival_s, prompt, output, (source,))


def _seconds(time_us: NDArray[np.int64]) -> NDArray[np.float64]:
    """Turn microseconds into seconds from the first in place: the largest traces fill the memory."""
    arrival_s, first_us = time_us.view(np.float64), time_us[0]
    for start in range(0, len(time_us), BLOCK_ROWS):
        arrival_s[start : start + BLOCK_ROWS] = (time_us[start : start + BLOCK_ROWS] - first_us) / 1e6
    return arrival_s


def _joined(parts: Iterable[Kept], dropped: Counter[str], expected_rows: int) -> list[NDArray[np.int64]]:
    """Join times, prompts and outputs as they come, in columns that grow in place: no part is held twice."""
    first_rows = min(max(expected_rows, _FIRST_ROWS), _MOST_EXPECTED_ROWS)
    columns = [np.empty(first_rows, np.int64) for _ in range(3)]
    filled = 0
    for part in parts:
        dropped.update(part.dropped)
        end = filled + len(part.prompt)
        found: tuple[NDArray[Any], ...] = (part.time_us, part.prompt, part.output)
        for column, values in zip(columns, found, strict=True):
            if end > len(column):
                column.resize(max(end, len(column) * 5 // 4), refcheck=False)
            column[filled:end] = values
        filled = end
    for column in columns:
        column.resize(filled, refcheck=False)
    return columns


def counted(count: int, one: str, many: str) -> str:
    """Return the number with the words for one or for many."""
    return f"{count} {one if count == 1 else many}"


def nothing_kept(path: Path, dropped: Counter[str]) -> TraceError:
    """Say why a file gives no trace."""
    if not dropped:
        return TraceError(f"`{path}` has a header and no rows", "give a file with traffic in it")
    reasons = ", ".join(f"{reason} ({count})" for reason, count in dropped.most_common())
    return TraceError(f"no row of `{path}` can be used: {reasons}", "check the file and its columns")


def _all_usable(counts: Counts) -> bool:
    # nan makes both comparisons false; a fraction is only possible in a column of floats
    if not (counts.min() >= 1 and counts.max() <= MAX_TOKENS):
        return False
    return counts.dtype.kind == "i" or bool(np.all(counts == np.rint(counts)))


def _complaints(
    prompt: Counts,
    output: Counts,
    reason: NDArray[np.uint8],
) -> NDArray[np.uint8]:
    """Give each row without a complaint its first one, in the order of the codes."""
    finite = np.isfinite(prompt) & np.isfinite(output)
    whole = (np.rint(prompt) == prompt) & (np.rint(output) == output)
    tests = (
        (BAD_COUNT, ~(finite & whole)),
        (NEGATIVE, (prompt < 0) | (output < 0)),
        (ABSURD, (prompt > MAX_TOKENS) | (output > MAX_TOKENS)),
        (EMPTY, (prompt == 0) & (output == 0)),
        (NO_PROMPT, prompt == 0),
        (NO_OUTPUT, output == 0),
    )
    conditions = [reason != FINE, *(test for _, test in tests)]
    return np.select(conditions, [reason, *(np.uint8(code) for code, _ in tests)], np.uint8(FINE)).astype(
        np.uint8
    )


def _regular(time_us: NDArray[np.int64]) -> tuple[str, ...]:
    some = np.diff(time_us[:20])
    if len(some) < 19 or some[0] <= 0 or np.any(some != some[0]):
        return ()
    starts = range(0, len(time_us), BLOCK_ROWS)
    if any(np.any(np.diff(time_us[start : start + BLOCK_ROWS + 1]) != some[0]) for start in starts):
        return ()
    return (f"arrivals are exactly {some[0] / 1e6:g} s apart: hardly a recorded trace",)
