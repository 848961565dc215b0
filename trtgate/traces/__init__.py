"""What was asked of a service: one reader a format, in the literal table `READERS`."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from trtgate.errors import TraceError
from trtgate.traces.aibrix import AIBRIX
from trtgate.traces.azure import AZURE
from trtgate.traces.bailian import BAILIAN
from trtgate.traces.base import (
    COLUMNS_SPELLING,
    ColumnNames,
    Ranges,
    Reader,
    ReadOptions,
    Steps,
    Streaming,
    Trace,
    TraceSource,
)
from trtgate.traces.burstgpt import BURSTGPT
from trtgate.traces.files import read_head
from trtgate.traces.iterlog import TRTLLM_LOG
from trtgate.traces.iterstats import TRTLLM_METRICS
from trtgate.traces.lengths import LENGTHS
from trtgate.traces.mooncake import MOONCAKE
from trtgate.traces.plain import CSV, JSONL, PARQUET
from trtgate.traces.prometheus import PROMETHEUS
from trtgate.traces.servegen import SERVEGEN
from trtgate.traces.splitwise import SPLITWISE
from trtgate.traces.vidur import VIDUR
from trtgate.traces.vllmlog import VLLM_LOG

__all__ = [
    "COLUMNS_SPELLING",
    "READERS",
    "ColumnNames",
    "Ranges",
    "ReadOptions",
    "Reader",
    "Steps",
    "Trace",
    "TraceSource",
    "detect",
    "read_any",
    "read_trace",
    "stream_steps",
]

READERS: dict[str, Reader] = {
    "azure": AZURE,
    "burstgpt": BURSTGPT,
    "vidur": VIDUR,
    "splitwise": SPLITWISE,
    "mooncake": MOONCAKE,
    "bailian": BAILIAN,
    "aibrix": AIBRIX,
    "servegen": SERVEGEN,
    "trtllm-log": TRTLLM_LOG,
    "trtllm-metrics": TRTLLM_METRICS,
    "vllm-log": VLLM_LOG,
    "prometheus": PROMETHEUS,
    "lengths": LENGTHS,
    "parquet": PARQUET,
    "jsonl": JSONL,
    "csv": CSV,
}

PLAIN = (PARQUET, JSONL, CSV)


def detect(path: Path, *, plain: bool = False) -> Reader:
    """Return the first reader that knows the file, or where `plain`, of those for columns named by the user.

    `TraceError` says what the file looks like.
    """
    head = read_head(path)
    for reader in PLAIN if plain else READERS.values():
        if reader.sniff(head, path.name):
            return reader
    first = " ".join(head[:400].decode(errors="replace").split())[:80]
    raise TraceError(
        f"`{path}` is in no known format; it begins with `{first}`",
        f"known are {', '.join(READERS)}; for a plain table give `--columns {COLUMNS_SPELLING}`",
    )


def read_any(
    path: Path,
    *,
    format: str | None = None,  # noqa: A002 - as the command line spells it
    options: ReadOptions | None = None,
) -> Trace | Steps | Ranges:
    """Read a file of any known format, detected unless `format` (a key of `READERS`) says it."""
    options = options or ReadOptions()
    return _reader(path, format, plain=options.columns is not None).read(path, options)


def stream_steps(
    path: Path,
    *,
    format: str | None = None,  # noqa: A002 - as the command line spells it
    options: ReadOptions | None = None,
) -> Iterator[Steps]:
    """Read a log of iterations in parts, of which the last bears the source: memory stays flat as files grow.

    Refuses (`TraceError`) what `read_any` refuses, and a file that holds no log of iterations.
    """
    reader = _reader(path, format, plain=False)
    if not isinstance(reader, Streaming):
        raise TraceError(f"`{path}` is no log of iterations, but `{reader.name}`", "read it as a whole")
    return reader.stream(path, options or ReadOptions())


def read_trace(
    path: Path,
    *,
    format: str | None = None,  # noqa: A002 - as the command line spells it
    columns: ColumnNames | None = None,
    options: ReadOptions | None = None,
) -> Trace:
    """Read a file of requests; refuses one of iterations or buckets, which `trtgate histogram` reads."""
    options = options or ReadOptions()
    if columns is not None:
        options = replace(options, columns=columns)
    found = read_any(path, format=format, options=options)
    if isinstance(found, Trace):
        return found
    raise TraceError(f"`{path}` holds iterations and no requests", "give it to `trtgate histogram`")


def _reader(path: Path, word: str | None, *, plain: bool) -> Reader:
    if word is None:
        return detect(path, plain=plain)
    if word not in READERS:
        raise TraceError(f"`{word}` is not a format", f"known are {', '.join(READERS)}")
    return READERS[word]
