"""Histograms of many files at once, in local processes or on a Dask cluster; only histograms travel back."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from trtgate.errors import TraceError, TrtgateError, UsageError
from trtgate.plans.costs import Costs
from trtgate.plans.histogram import Histogram, Kind, Limits, from_ranges, from_steps, merge
from trtgate.plans.simulate import simulate
from trtgate.traces import read_any
from trtgate.traces.base import ReadOptions, Steps, Trace


@dataclass(frozen=True, slots=True)
class Part:
    """One file and how to make a histogram of it; requests are simulated, iterations and buckets counted.

    `source` is a path, or a URL that fsspec knows and reads on the machine that works on the part. `range_kind` says
    which steps a bucketed series counts. A fleet's parts are its hours or replicas: each is simulated apart.
    """

    source: str
    limits: Limits
    costs: Costs
    format: str | None = None
    options: ReadOptions | None = None
    speed_up: float = 1.0
    range_kind: Kind = "tokens"


def part_histogram(part: Part) -> Histogram:
    """Read one part and make its histogram."""
    with _local(part.source) as path:
        found = read_any(path, format=part.format, options=part.options)
    if isinstance(found, Trace):
        return simulate(found, part.limits, part.costs, speed_up=part.speed_up)
    if isinstance(found, Steps):
        return from_steps(found)
    limits = part.limits
    ceiling = limits.max_decode_size if part.range_kind == "decode" else limits.max_num_tokens
    return from_ranges(found, part.range_kind, ceiling)


def histogram_of(
    parts: Sequence[Part],
    *,
    cluster: str | None = None,
    processes: int = 1,
    make: Callable[[Part], Histogram] = part_histogram,
) -> Histogram:
    """The sum over all parts: the same bytes wherever, and in whatever order, they are worked on.

    `cluster` is the address of a Dask scheduler such as `tcp://10.0.0.1:8786` (extra `trtgate[cluster]`); work lost
    with a worker is done again by another. Without it, `processes` local ones work. Refuses (`UsageError`) no parts.
    """
    if not parts:
        raise UsageError("there are no parts to read", "give at least one file")
    if cluster is not None:
        return _sum(_on_cluster(parts, cluster, make))
    if processes > 1:
        return _sum(_in_processes(parts, processes, make))
    return _sum(make(part) for part in parts)


def _sum(histograms: Iterable[Histogram]) -> Histogram:
    total: Histogram | None = None
    for histogram in histograms:
        total = merge(histogram) if total is None else merge(total, histogram)
    assert total is not None
    return total


def _in_processes(
    parts: Sequence[Part], processes: int, make: Callable[[Part], Histogram]
) -> Iterator[Histogram]:
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        try:
            for future in as_completed([pool.submit(make, part) for part in parts]):
                yield future.result()
        except BrokenProcessPool as error:
            message = "a local process died while it read a part"
            raise TrtgateError(message, "give it more memory, or use fewer processes") from error


def _on_cluster(
    parts: Sequence[Part], address: str, make: Callable[[Part], Histogram]
) -> Iterator[Histogram]:
    distributed = _optional("distributed", "cluster")
    try:
        client = distributed.Client(address, timeout=30, set_as_default=False)
    except OSError as error:
        message = f"no Dask scheduler answers at `{address}`"
        raise UsageError(message, "start one or check the address") from error
    with client:
        futures = client.map(make, parts, pure=False)
        try:
            for future in distributed.as_completed(futures, loop=client.loop):
                yield future.result()
        except distributed.KilledWorker as error:
            message = "a part was lost with every worker that tried it"
            raise TrtgateError(message, "give the workers more memory, or read the part alone") from error


@contextmanager
def _local(source: str) -> Iterator[Path]:
    """The file itself, or a copy of what a URL names, under the same name, for as long as it is read."""
    if "://" not in source:
        yield Path(source)
        return
    core = _optional("fsspec.core", "remote")
    with TemporaryDirectory(prefix="trtgate-") as folder:
        try:
            files, path = core.url_to_fs(source)
            copy = Path(folder) / PurePosixPath(path).name
            files.get_file(path, str(copy))
        except (OSError, ValueError, ImportError) as error:
            raise TraceError(
                f"`{source}` cannot be read: {error}", "check the address and the rights"
            ) from error
        yield copy


def _optional(module: str, extra: str) -> Any:  # noqa: ANN401 - a module that may be absent has no type
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(f"`{module}` is not installed", f"install `trtgate[{extra}]`") from error
