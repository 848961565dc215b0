"""Reads tables with commas: columns by name, by a compiled scan, and cell by cell where that is in doubt."""

import csv
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trtgate.errors import TraceError
from trtgate.traces.base import COLUMNS_SPELLING, ColumnNames, ReadOptions, TimeUnit, Trace
from trtgate.traces.files import Piece, hashing, lines, read_head
from trtgate.traces.rows import (
    BAD_COUNT,
    BAD_TIME,
    NO_COUNT,
    NO_TIME,
    OTHER_SHAPE,
    SCALES,
    Block,
    Kept,
    Origin,
    assemble,
    numeric_time_us,
    select,
)

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_THREADS = 2
_In = TypeVar("_In")
_Out = TypeVar("_Out")


@dataclass(frozen=True, slots=True)
class TableReader:
    """A format of comma-separated rows: the names of its columns and the unit of its times.

    `marks` are further columns by which the format is told from others with the same three.
    """

    name: str
    columns: ColumnNames
    unit: TimeUnit
    marks: frozenset[str] = frozenset()

    def sniff(self, head: bytes, filename: str) -> bool:  # noqa: ARG002 - the header says enough
        """Whether the header has the columns of this format, whatever separates them."""
        found = set(split_header(head)[1])
        return self.marks | set(needed(self.columns)) <= found

    def read(self, path: Path, options: ReadOptions) -> Trace:
        """Read the table; `TraceError` names the columns found and needed, or the separator that is wrong."""
        return read_table(path, self.name, self.columns, self.unit, options)


def read_table(path: Path, name: str, columns: ColumnNames, unit: TimeUnit, options: ReadOptions) -> Trace:
    """Read a table with commas whose three columns and time unit are known."""
    head = read_head(path)
    header = split_header(head)
    if header[0] != ",":
        raise TraceError(f"`{path}` separates its columns by {SEPARATORS[header[0]]}", "save it with commas")
    where = find_columns(path, header[1], columns)
    if unit in ("s", "ms") and options.time_unit:
        unit = options.time_unit

    def parse(piece: Piece) -> Kept:
        return select(_parse(piece, len(header[1]), where, unit), options)

    with hashing(path) as digest:
        parts = in_parallel(parse, _without_header(lines(path)))
        return assemble(parts, Origin(path, name, unit, digest, expected_rows=_expected_rows(path, head)))


def _expected_rows(path: Path, head: bytes) -> int:
    """Guess from the first rows, and a little more: room that is not filled costs nothing."""
    return int(path.stat().st_size * (head.count(b"\n") + 1) / len(head) * 1.02)


def split_header(head: bytes) -> tuple[str, list[str]]:
    """Return the separator that gives the first line the most columns, and the names of these."""
    first = head.lstrip(b"\r\n").split(b"\n", 1)[0].decode(errors="replace")
    separator = max(SEPARATORS, key=first.count)
    return separator, [name.strip().strip('"').strip() for name in first.split(separator)]


def find_columns(path: Path, found: list[str], columns: ColumnNames) -> list[int]:
    """Return the places of time (unless None), prompt and output; `TraceError` where a name is missing."""
    names = needed(columns)
    if len(set(names)) < len(names):
        raise TraceError(f"`{max(names, key=names.count)}` is named twice", "name a column for each length")
    missing = [name for name in names if name not in found]
    if missing:
        shown = ", ".join(f"`{name[:40]}`" for name in found[:12])
        raise TraceError(
            f"`{path}` has the columns {shown}, and not {', '.join(f'`{name}`' for name in missing)}",
            f"name its columns with `--columns {COLUMNS_SPELLING}`",
        )
    return [found.index(name) for name in names]


def in_parallel(work: Callable[[_In], _Out], items: Iterable[_In]) -> Iterator[_Out]:
    """Map in two threads, in order, never more than three items ahead, so that memory stays flat."""
    waiting: deque[Future[_Out]] = deque()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="parse") as pool:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def needed(columns: ColumnNames) -> tuple[str, ...]:
    """Return the names that must be there, in the order time (unless None), prompt, output."""
    tokens = (columns.prompt_tokens, columns.output_tokens)
    return tokens if columns.time is None else (columns.time, *tokens)


def _without_header(pieces: Iterable[Piece]) -> Iterator[Piece]:
    first = True
    for piece in pieces:
        rows = piece.lstrip(b"\r\n").partition(b"\n")[2] if first else piece
        first = False
        if rows and not rows.isspace():
            yield rows


def _parse(piece: Piece, width: int, where: list[int], unit: TimeUnit) -> Block:
    """Read rows by the compiled scan; where it is in doubt, read this piece cell by cell."""
    from trtgate.traces.scantable import scan_table

    time, prompt_place, output_place = where if len(where) == 3 else (-1, *where)
    found = scan_table(piece, width, (time, prompt_place, output_place), SCALES[unit])
    if found is None:
        return _cells(piece, width, where, unit)
    time_us, (prompt, output) = found
    return Block(time_us, prompt, output, np.zeros(len(prompt), np.uint8))


def _cells(piece: Piece, width: int, where: list[int], unit: TimeUnit) -> Block:
    """Read the wanted cells of all rows of the right width as text, and count the other rows."""
    skipped = 0
    cells: list[tuple[str, ...]] = []
    for line in piece.decode(errors="replace").split("\n"):
        row = split_row(line)
        if len(row) == width:
            cells.append(tuple(row[place].strip() for place in where))
        else:
            skipped += bool(line.strip())
    columns = zip(*cells, strict=True) if cells else [()] * len(where)
    return lenient([pd.Series(column, dtype=str) for column in columns], unit, skipped)


def split_row(line: str) -> list[str]:
    """Split one line; a quote that is never closed ends with it."""
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def lenient(texts: "list[pd.Series[str]]", unit: TimeUnit, skipped: int = 0) -> Block:
    """Read cells of text one by one, so that a bad one costs its own row and no other."""
    prompt, output = (_numbers(text) for text in texts[-2:])
    reason = np.where((texts[-2] == "") | (texts[-1] == ""), NO_COUNT, 0).astype(np.uint8)
    reason[(reason == 0) & ~(np.isfinite(prompt) & np.isfinite(output))] = BAD_COUNT
    left_out = Counter({OTHER_SHAPE: skipped} if skipped else {})
    if len(texts) == 2:
        return Block(None, prompt, output, reason, left_out)
    time_us, time_reason = _times(texts[0], unit)
    time_reason[texts[0] == ""] = NO_TIME
    return Block(
        time_us, prompt, output, np.where(time_reason, time_reason, reason).astype(np.uint8), left_out
    )


def _times(text: "pd.Series[str]", unit: TimeUnit) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    return date_times_us(text) if unit == "timestamp" else numeric_time_us(_numbers(text), unit)


def date_times_us(text: "pd.Series[str]") -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Turn dates, with or without fraction, zone and `T`, into microseconds; without a zone they are UTC."""
    dates = pd.to_datetime(text, format="ISO8601", errors="coerce", utc=True).dt.as_unit("us")
    missing = dates.isna().to_numpy()
    time_us = dates.dt.tz_localize(None).to_numpy().astype(np.int64)
    return np.where(missing, 0, time_us), np.where(missing, BAD_TIME, 0).astype(np.uint8)


def _numbers(text: "pd.Series[str]") -> NDArray[np.float64]:
    return pd.to_numeric(text, errors="coerce").to_numpy(np.float64, na_value=np.nan)
