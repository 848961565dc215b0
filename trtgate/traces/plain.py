"""Plain tables, JSON lines and Parquet, whose columns the user names."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from trtgate.errors import TraceError
from trtgate.traces.base import ColumnNames, ReadOptions, TimeUnit, Trace
from trtgate.traces.files import hashing, read_head
from trtgate.traces.jsonlines import head_objects, read_json_lines
from trtgate.traces.rows import NO_COUNT, NO_TIME, Block, Counts, Origin, assemble, numeric_time_us, select
from trtgate.traces.tables import (
    date_times_us,
    find_columns,
    in_parallel,
    needed,
    read_table,
    split_header,
    split_row,
)

_BATCH_ROWS = 1 << 16  # batches that stay in the cache of a processor are the fastest
_BUFFER_BYTES = 1 << 18
OWN_NAMES = ColumnNames("arrival_s", "prompt_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class CsvReader:
    """A table with commas; without names from the user it must use our own."""

    name: str = "csv"

    def sniff(self, head: bytes, filename: str) -> bool:  # noqa: ARG002 - the header says enough
        """Whether the first line looks like names of columns."""
        names = split_header(head)[1]
        return len(names) > 1 and all(name.replace(" ", "_").isidentifier() for name in names)

    def read(self, path: Path, options: ReadOptions) -> Trace:
        """Read the table; `TraceError` where a column is missing or the unit of numeric times is unknown."""
        columns = options.columns or OWN_NAMES
        head = read_head(path)
        where = find_columns(path, split_header(head)[1], columns)
        rows = (split_row(line) for line in head.decode(errors="replace").lstrip().split("\n")[1:])
        times = [row[where[0]].strip() for row in rows if where[0] < len(row)]
        return read_table(path, self.name, columns, time_unit(path, columns, times, options), options)


@dataclass(frozen=True, slots=True)
class JsonReader:
    """JSON lines of one request each; without names from the user they must use our own."""

    name: str = "jsonl"

    def sniff(self, head: bytes, filename: str) -> bool:  # noqa: ARG002 - the keys say enough
        """Whether the first line is a JSON object."""
        return bool(head_objects(head))

    def read(self, path: Path, options: ReadOptions) -> Trace:
        """Read the lines; `TraceError` where a key is missing or the unit of numeric times is unknown."""
        columns = options.columns or OWN_NAMES
        found = (row.get(columns.time or "") for row in head_objects(read_head(path)))
        times = [str(time) for time in found if time is not None]
        return read_json_lines(path, self.name, columns, time_unit(path, columns, times, options), options)


@dataclass(frozen=True, slots=True)
class ParquetReader:
    """A Parquet file; without names from the user it must use our own."""

    name: str = "parquet"

    def sniff(self, head: bytes, filename: str) -> bool:  # noqa: ARG002 - the first bytes say enough
        """Whether the file begins as Parquet does."""
        return head.startswith(b"PAR1")

    def read(self, path: Path, options: ReadOptions) -> Trace:
        """Read the columns; `TraceError` where one is missing, of a wrong type, or the file is damaged."""
        columns = options.columns or OWN_NAMES
        try:
            # pieces read as they are needed: read ahead, the whole file would be in memory
            with (
                parquet.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file,
                hashing(path) as digest,
            ):
                find_columns(path, file.schema_arrow.names, columns)
                unit = _parquet_unit(path, file.schema_arrow, columns, options)
                blocks = file.iter_batches(_BATCH_ROWS, columns=list(needed(columns)))
                parts = in_parallel(lambda batch: select(_block(path, batch, columns, unit), options), blocks)
                origin = Origin(path, self.name, unit, digest, expected_rows=file.metadata.num_rows)
                return assemble(parts, origin)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise TraceError(f"`{path}` is not readable as Parquet: {error}", "fetch it again") from error


def _parquet_unit(path: Path, schema: pa.Schema, columns: ColumnNames, options: ReadOptions) -> TimeUnit:
    if columns.time is None:
        return "none"
    kind = schema.field(columns.time).type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return time_unit(path, columns, ["0"] if number else [], options)


def _block(path: Path, batch: pa.RecordBatch, columns: ColumnNames, unit: TimeUnit) -> Block:
    prompt, output = (_counts(path, batch, name) for name in needed(columns)[-2:])
    reason = np.zeros(len(prompt), np.uint8)
    for counts in (prompt, output):
        if counts.dtype.kind == "f":
            reason[np.isnan(counts)] = NO_COUNT
    if columns.time is None:
        return Block(None, prompt, output, reason)
    column = batch.column(columns.time)
    if unit == "timestamp":
        if pa.types.is_string(column.type):
            time_us, late = date_times_us(column.fill_null("").to_pandas())
        else:
            time_us = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).fill_null(0).to_numpy()
            late = reason * 0
    else:
        times = column.fill_null(0) if column.null_count else column
        time_us, late = numeric_time_us(times.cast(pa.float64()).to_numpy(), unit)
    if column.null_count:
        late[column.is_null().to_numpy(zero_copy_only=False)] = NO_TIME
    return Block(time_us, prompt, output, np.where(late, late, reason))


def _counts(path: Path, batch: pa.RecordBatch, name: str) -> Counts:
    """Return a column of counts, nan where there is none."""
    column = batch.column(name)
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise TraceError(f"`{name}` in `{path}` is of type {column.type}", "give a column of numbers")
    if column.null_count or not pa.types.is_signed_integer(column.type):
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
    return np.asarray(column.cast(pa.int64()).to_numpy(), np.int64)


def time_unit(path: Path, columns: ColumnNames, times: list[str], options: ReadOptions) -> TimeUnit:
    """Return how times are written, by most of the first ones, the user's word and the name of the column."""
    if columns.time is None:
        return "none"
    numbers = [time for time in times if _is_number(time)]
    dates = [time for time in times if ":" in time or "-" in time[4:5]]
    if len(dates) > len(numbers) or not numbers:
        return "timestamp"
    if options.time_unit:
        return options.time_unit
    if columns.time.lower().endswith("_ms"):
        return "ms"
    if columns.time.lower().endswith(("_s", "_sec", "_seconds")):
        return "s"
    raise TraceError(
        f"`{columns.time}` in `{path}` holds numbers of an unknown unit, such as `{numbers[0][:40]}`",
        "say `--time-unit s` or `--time-unit ms`",
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


CSV = CsvReader()
JSONL = JsonReader()
PARQUET = ParquetReader()
