"""Reads JSON lines, one request a line: by pyarrow, and line by line only where a line needs it."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import compute
from pyarrow import json as arrow_json

from trtgate.errors import TraceError
from trtgate.traces.base import COLUMNS_SPELLING, ColumnNames, ReadOptions, TimeUnit, Trace
from trtgate.traces.files import hashing, lines, read_head
from trtgate.traces.rows import (
    CUT_OFF,
    OTHER_SHAPE,
    Block,
    Origin,
    assemble,
    counted,
    numeric_time_us,
    select,
)
from trtgate.traces.tables import in_parallel, lenient, needed

BLOCKS = "hash_ids"
BAD_LINE = "line not readable"


@dataclass(frozen=True, slots=True)
class JsonLinesReader:
    """A format of one request a line: its keys, the unit of its times, the tokens of a block in `hash_ids`.

    `marks` are further keys by which the format is told from others, `absent` keys that it never has.
    """

    name: str
    columns: ColumnNames
    unit: TimeUnit
    block_tokens: int
    marks: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()

    def sniff(self, head: bytes, filename: str) -> bool:  # noqa: ARG002 - the keys say enough
        """Whether the first line has the keys of this format."""
        keys = first_object(head).keys()
        return self.marks | set(needed(self.columns)) <= keys and not self.absent & keys

    def read(self, path: Path, options: ReadOptions) -> Trace:
        """Read the lines; `TraceError` where none can be used."""
        unit = options.time_unit or self.unit
        return read_json_lines(path, self.name, self.columns, unit, options, block_tokens=self.block_tokens)


def read_json_lines(
    path: Path,
    name: str,
    columns: ColumnNames,
    unit: TimeUnit,
    options: ReadOptions,
    *,
    block_tokens: int = 0,
) -> Trace:
    """Read JSON lines whose keys and time unit are known; notes rows whose blocks do not fit their length."""
    first = first_object(read_head(path))
    missing = [key for key in needed(columns) if key not in first]
    if first and missing:
        raise TraceError(
            f"`{path}` has the keys {_quoted(list(first)[:12])}, and not {_quoted(missing)}",
            f"name its keys with `--columns {COLUMNS_SPELLING}`; `--format lengths` reads lengths alone",
        )

    def parse(piece: bytes) -> tuple[Block, int]:
        return _parse(piece, columns, unit, block_tokens)

    misfits = 0

    def blocks() -> Iterator[Block]:
        nonlocal misfits
        for block, misfit in in_parallel(parse, lines(path)):
            misfits += misfit
            yield block

    with hashing(path) as digest:
        parts = [select(block, options) for block in blocks()]
        note = counted(misfits, "row has", "rows have") + f" `{BLOCKS}` that do not fit the length"
        return assemble(parts, Origin(path, name, unit, digest, (note,) if misfits else ()))


def first_object(head: bytes) -> dict[str, Any]:
    """Return the first line of a head as a JSON object, empty where it is none."""
    line = head.lstrip().split(b"\n", 1)[0]
    found = _object(line) if line.startswith(b"{") else None
    return found if isinstance(found, dict) else {}


def objects(piece: bytes, left_out: Counter[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a piece, one a line, and count the lines that hold none."""
    rows = piece.split(b"\n")
    for place, line in enumerate(rows):
        if not line.strip():
            continue
        found = _object(line)
        if isinstance(found, dict):
            yield found
        elif found is None:
            left_out[CUT_OFF if place == len(rows) - 1 else BAD_LINE] += 1
        else:
            left_out[OTHER_SHAPE] += 1


def block_of(rows: Iterable[tuple[Any, ...]], unit: TimeUnit, left_out: Counter[str]) -> Block:
    """Turn JSON values (time unless a length list, prompt, output) into columns, each with its complaint."""
    texts = [pd.Series([_text(value) for value in column], dtype=str) for column in zip(*rows, strict=True)]
    if texts:
        return replace(lenient(texts, unit), left_out=left_out)
    none = np.empty(0, np.int64)
    return Block(none, none, none, np.empty(0, np.uint8), left_out)


def _parse(piece: bytes, columns: ColumnNames, unit: TimeUnit, block_tokens: int) -> tuple[Block, int]:
    if not piece.strip():
        return block_of((), unit, Counter()), 0
    if unit != "timestamp" and (typed := _typed(piece, columns, unit, block_tokens)):
        return typed
    left_out: Counter[str] = Counter()
    names = needed(columns)
    rows, misfits = [], 0
    for row in objects(piece, left_out):
        rows.append(tuple(row.get(name) for name in names))
        misfits += _misfit(row.get(BLOCKS), row.get(columns.prompt_tokens), block_tokens)
    return block_of(rows, unit, left_out), misfits


def _typed(piece: bytes, columns: ColumnNames, unit: TimeUnit, block_tokens: int) -> tuple[Block, int] | None:
    """Read a piece in which every line has numbers under every key; None where one has not."""
    fields = [(columns.prompt_tokens, pa.int64()), (columns.output_tokens, pa.int64())]
    fields += [(columns.time, pa.float64())] if columns.time is not None else []
    fields += [(BLOCKS, pa.list_(pa.int64()))] if block_tokens else []
    try:
        table = arrow_json.read_json(
            pa.py_buffer(piece),
            arrow_json.ReadOptions(use_threads=False, block_size=len(piece) + 1),
            arrow_json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if table.num_columns < len(fields) or any(table.column(name).null_count for name in needed(columns)):
        return None
    prompt, output = (table.column(name).to_numpy() for name in needed(columns)[-2:])
    misfits = 0
    if block_tokens:
        counts = compute.list_value_length(table.column(BLOCKS)).fill_null(-1).to_numpy()
        misfits = int(np.count_nonzero((counts >= 0) & (counts != -(-prompt // block_tokens))))
    if columns.time is None:
        return Block(None, prompt, output, np.zeros(len(prompt), np.uint8)), misfits
    time_us, reason = numeric_time_us(table.column(columns.time).to_numpy(), unit)
    return Block(time_us, prompt, output, reason), misfits


def _misfit(blocks: object, prompt: object, block_tokens: int) -> bool:
    known = block_tokens and isinstance(blocks, list) and isinstance(prompt, int)
    return bool(known) and len(blocks) != -(-prompt // block_tokens)  # type: ignore[arg-type,operator]


def _object(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str:
    if value is None:
        return ""
    return value.strip() if isinstance(value, str) else repr(value)[:64]


def _quoted(names: list[str]) -> str:
    return ", ".join(f"`{name[:40]}`" for name in names)
