"""Reads JSON lines, one request a line, each on its own: a broken line costs itself only."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from trtgate.errors import TraceError
from trtgate.traces.base import COLUMNS_SPELLING, ColumnNames, ReadOptions, TimeUnit, Trace
from trtgate.traces.files import Piece, hashing, lines, read_head
from trtgate.traces.rows import (
    CUT_OFF,
    OTHER_SHAPE,
    Block,
    Origin,
    assemble,
    counted,
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
        keys = head_keys(head).keys()
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
    first = head_keys(read_head(path))
    missing = [key for key in needed(columns) if key not in first]
    if first and missing:
        raise TraceError(
            f"`{path}` has the keys {_quoted(list(first)[:12])}, and not {_quoted(missing)}",
            f"name its keys with `--columns {COLUMNS_SPELLING}`; `--format lengths` reads lengths alone",
        )

    def parse(piece: Piece) -> tuple[Block, int]:
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


def head_objects(head: bytes) -> list[dict[str, Any]]:
    """Return the objects in the first lines, none where the text does not begin with one."""
    rows = head.split(b"\n") if head.lstrip().startswith(b"{") else []
    return [found for line in rows if isinstance(found := _object(line), dict)]


def head_keys(head: bytes) -> dict[str, Any]:
    """Return the keys that the objects in the first lines have, each with its first value."""
    return {key: value for row in reversed(head_objects(head)) for key, value in row.items()}


def objects(piece: Piece, left_out: Counter[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a piece, one a line, and count the lines that hold none."""
    rows = bytes(piece).split(b"\n")
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


def _parse(piece: Piece, columns: ColumnNames, unit: TimeUnit, block_tokens: int) -> tuple[Block, int]:
    if not piece.strip():
        return block_of((), unit, Counter()), 0
    left_out: Counter[str] = Counter()
    names = needed(columns)
    rows, misfits = [], 0
    for row in objects(piece, left_out):
        rows.append(tuple(row.get(name) for name in names))
        misfits += _misfit(row.get(BLOCKS), row.get(columns.prompt_tokens), block_tokens)
    return block_of(rows, unit, left_out), misfits


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
