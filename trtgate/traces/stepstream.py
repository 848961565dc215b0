"""From the rows of steps, piece by piece, to steps with one row an iteration and the books of the whole file."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtgate.errors import TraceError
from trtgate.traces.base import Steps, TraceSource
from trtgate.traces.rows import Origin, counted
from trtgate.traces.steps import BAD_ITERATION, StepRows

SAME_ITERATION = "same iteration on another rank"
PART_ROWS = 1 << 17
MOST_HELD_ROWS = 1 << 19  # a rank that falls silent must not hold back the others for ever
_RUN = 1 << 40  # above any number of an iteration
_NAMES = ("iteration", "rank", "decode", "size", "padded", "step_ms")
Columns = list[NDArray[Any]]  # those of Steps in the order of _NAMES; while merging, a key behind them


@dataclass(frozen=True, slots=True)
class _Books:
    """What is counted while a file is read, and the last key of each rank."""

    dropped: Counter[str] = field(default_factory=Counter)
    tally: Counter[str] = field(default_factory=Counter)
    times_s: list[tuple[float, float]] = field(default_factory=list)
    last: dict[int, int] = field(default_factory=dict)


def stream_steps(
    parts: Iterable[StepRows], origin: Origin, *, merge_ranks: bool, hint: str
) -> Iterator[Steps]:
    """Yield steps in parts of bounded size; the last one, maybe empty, bears the source of the whole file.

    With `merge_ranks`, the rows of one iteration on several ranks become one: of most tokens where any rank has
    context tokens, else of most requests. Refuses (`TraceError`, `hint`) a file without any work in it.
    """
    books = _Books()
    held: Columns = []
    for columns in _batches(parts, books):
        if merge_ranks:
            keyed = [*columns, _keys(columns, books)]
            held = [np.concatenate(pair) for pair in zip(held, keyed, strict=True)] if held else keyed
            yield _steps(_complete(held, books), books)
        else:
            yield _steps(columns, books)
    rest = (
        _merged(held, books) if held else [np.empty(0, kind) for kind in ("i4", "i2", "?", "i4", "i4", "f4")]
    )
    books.tally["kept"] += len(rest[0])
    iteration, rank, decode, size, padded, step_ms = rest[: len(_NAMES)]
    yield Steps(iteration, rank, decode, size, padded, step_ms, (_source(origin, books, hint),))


def join_steps(parts: Iterable[StepRows], origin: Origin, *, merge_ranks: bool, hint: str) -> Steps:
    """Join all parts into one."""
    found = list(stream_steps(parts, origin, merge_ranks=merge_ranks, hint=hint))
    columns = {name: np.concatenate([getattr(part, name) for part in found]) for name in _NAMES}
    return Steps(**columns, sources=found[-1].sources)


def _batches(parts: Iterable[StepRows], books: _Books) -> Iterator[Columns]:
    """Join small pieces to larger ones, and enter what they left out."""
    waiting: list[tuple[NDArray[Any], ...]] = []
    rows = 0
    for part in parts:
        books.dropped.update(part.dropped)
        books.tally.update(unmatched=part.unmatched, without_requests=part.without_requests)
        books.times_s.append(part.times_s)
        waiting.append(part.columns)
        rows += len(part.columns[0])
        if rows >= PART_ROWS:
            yield [np.concatenate(column) for column in zip(*waiting, strict=True)]
            waiting.clear()
            rows = 0
    if rows:
        yield [np.concatenate(column) for column in zip(*waiting, strict=True)]


def _keys(columns: Columns, books: _Books) -> NDArray[np.int64]:
    """Return a number that is equal for one iteration on all ranks; it counts on when a server starts anew."""
    iteration, rank = columns[0].astype(np.int64), columns[1]
    keys = np.empty(len(iteration), np.int64)
    for one in np.unique(rank):
        own = iteration[rank == one]
        run, before = divmod(books.last.get(int(one), -1), _RUN)
        runs = max(run, 0) + np.cumsum(np.diff(own, prepend=before if run >= 0 else -1) <= 0)
        keys[rank == one] = runs * _RUN + own
        books.last[int(one)] = int(keys[rank == one][-1])
    return keys


def _complete(held: Columns, books: _Books) -> Columns:
    """Take the iterations that all ranks have left behind out of `held`, one row each."""
    done = held[-1] < min(books.last.values())
    if len(books.last) == 1 or np.count_nonzero(~done) > MOST_HELD_ROWS:
        done[:] = True
    taken = [column[done] for column in held]
    held[:] = [column[~done] for column in held]
    return _merged(taken, books)


def _merged(columns: Columns, books: _Books) -> Columns:
    """Keep one row a key: of most tokens where any rank has context tokens, else of most requests."""
    _, _, decode, size, _, _, key = columns
    if len(books.last) == 1 or not len(key):
        return columns
    order = np.lexsort((-size.astype(np.int64), decode, key))
    first = np.diff(key[order], prepend=-1) != 0
    chosen = np.sort(order[first])
    books.dropped[SAME_ITERATION] += len(key) - len(chosen)
    return [column[chosen] for column in columns]


def _steps(columns: Columns, books: _Books) -> Steps:
    iteration, rank, decode, size, padded, step_ms = columns[: len(_NAMES)]
    books.tally["kept"] += len(size)
    return Steps(iteration, rank, decode, size, padded, step_ms, ())


def _source(origin: Origin, books: _Books, hint: str) -> TraceSource:
    kept, dropped = books.tally["kept"], books.dropped
    if not kept:
        raise no_steps(origin, dropped, hint)
    span_s = _span_s(books.times_s)
    return TraceSource(
        name=origin.path.name,
        sha256=origin.sha256.result(),
        format=origin.format,
        read=kept + dropped.total(),
        kept=kept,
        dropped=dict(sorted((+dropped).items())),
        span_s=span_s or 0.0,
        time_unit="none" if span_s is None else "timestamp",
        notes=(*origin.notes, *_notes(books)),
    )


def _notes(books: _Books) -> Iterator[str]:
    read, bad = books.tally["kept"] + books.dropped.total(), books.dropped[BAD_ITERATION]
    if len(books.last) > 1:
        yield f"{len(books.last)} ranks; of each iteration the largest size was taken"
    if unknown := books.tally["without_requests"]:
        tell = counted(unknown, "iteration does", "iterations do")
        yield f"{tell} not tell requests from padding: sizes are upper bounds"
    if unmatched := books.tally["unmatched"]:
        yield counted(unmatched, "other line", "other lines")
    if bad > 0.05 * read:
        yield f"only {1 - bad / read:.1%} of the iterations were readable"


def no_steps(origin: Origin, dropped: Counter[str], hint: str) -> TraceError:
    """Say why a file gives no steps."""
    if not dropped:
        return TraceError(f"`{origin.path}` holds no iteration", hint)
    reasons = ", ".join(f"{reason} ({count})" for reason, count in dropped.most_common())
    return TraceError(f"no iteration of `{origin.path}` can be used: {reasons}", "record it under load")


def _span_s(times_s: list[tuple[float, float]]) -> float | None:
    first = next((first for first, _ in times_s if not isnan(first)), None)
    last = next((last for _, last in reversed(times_s) if not isnan(last)), None)
    return None if first is None or last is None else max(last - first, 0.0)
