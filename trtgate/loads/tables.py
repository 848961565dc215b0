"""The raw data of a run as Parquet: one table of requests, one of chunks, each read by pandas in one line."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trtgate.errors import TrtgateError
from trtgate.loads.base import Answer, LoadResult

_COLUMNS = {
    "request": pa.int64(),
    "tag": pa.string(),
    "scheduled_s": pa.float64(),
    "sent_s": pa.float64(),
    "first_s": pa.float64(),
    "last_s": pa.float64(),
    "end_s": pa.float64(),
    "connect_s": pa.float64(),
    "queued": pa.bool_(),
    "tokens": pa.int64(),
    "max_tokens": pa.int64(),
    "prompt_tokens": pa.int64(),
    "tokens_source": pa.string(),
    "error": pa.string(),
    "detail": pa.string(),
    "status": pa.int64(),
    "finish_reason": pa.string(),
}


def write_tables(result: LoadResult, folder: Path) -> tuple[Path, Path]:
    """Write `requests.parquet` and `chunks.parquet` (request, at_s, tokens); returns both paths.

    Times are seconds from the start of the run, whose wall-clock time is in the metadata of both.
    """
    requests, chunks = folder / "requests.parquet", folder / "chunks.parquet"
    metadata = {"started_unix_s": repr(result.started_unix_s), "duration_s": repr(result.duration_s)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(_requests(result).replace_schema_metadata(metadata), requests, compression="zstd")
        pq.write_table(_chunks(result).replace_schema_metadata(metadata), chunks, compression="zstd")
    except OSError as error:
        raise TrtgateError(
            f"cannot write to `{folder}`: {error}", "check the folder and its rights"
        ) from error
    return requests, chunks


def _requests(result: LoadResult) -> pa.Table:
    schema = pa.schema(list(_COLUMNS.items()))
    columns = {name: [_field(answer, name) for answer in result.answers] for name in _COLUMNS}
    return pa.table(
        {name: pa.array(columns[name], kind, from_pandas=True) for name, kind in _COLUMNS.items()}, schema
    )


def _field(answer: Answer, name: str) -> object:
    return answer.index if name == "request" else getattr(answer, name)


def _chunks(result: LoadResult) -> pa.Table:
    counts = [len(answer.chunk_s) for answer in result.answers]
    times = [np.frombuffer(answer.chunk_s, np.float64) for answer in result.answers if answer.chunk_s]
    tokens = [np.frombuffer(answer.chunk_tokens, np.uint16) for answer in result.answers if answer.chunk_s]
    return pa.table(
        {
            "request": np.repeat([answer.index for answer in result.answers], counts).astype(np.int64),
            "at_s": np.concatenate(times or [np.empty(0)]),
            "tokens": np.concatenate(tokens or [np.empty(0, np.uint16)]),
        }
    )
