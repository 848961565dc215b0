"""A run from the workers of a Dask cluster with one start, merged as that of local processes."""

import asyncio
import math
import time
from array import array
from collections.abc import Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any

from trtgate import __version__
from trtgate.errors import TrtgateError, UsageError
from trtgate.loads.base import Ask, LoadResult, Target
from trtgate.loads.flight import unsent
from trtgate.loads.instrument import Effort, read_instrument
from trtgate.loads.offsets import ROUND_TRIPS, WorkerClock, read_offset
from trtgate.loads.run import run_load
from trtgate.loads.workers import Share, merge, share_out

_CONNECT_S = 30.0
_LEAD_S = 2.0
_LOOK_S = 1.0
_FETCH_S = 300.0


@dataclass(frozen=True, slots=True, eq=False)
class ClusterResult:
    """One result of all workers, their clocks, and why the run is INVALID: a reason for each worker lost."""

    result: LoadResult
    clocks: tuple[WorkerClock, ...]
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """How every worker sends its asks, and `start_ns` on the clock of the one that gets it."""

    target: Target
    timeout_s: float
    max_connections: int
    drain_s: float
    start_ns: int = 0


def run_cluster(
    target: Target,
    asks: Sequence[Ask],
    address: str,
    *,
    timeout_s: float = 300.0,
    max_connections: int = 16_384,
    drain_s: float = 300.0,
) -> ClusterResult:
    """As `run_workers`, from all workers of the Dask scheduler at `address`, such as `tcp://10.0.0.1:8786`.

    The asks of a worker that is lost, or not ready at the start, are `unfinished`. Refuses (`UsageError`) an address
    where no scheduler answers, one without workers, and workers that are busy or have another version of trtgate.
    """
    with _connected(address) as client:
        workers = _workers(client, address)
        shares = share_out(asks, len(workers))
        order = Order(target, timeout_s, max(max_connections // len(shares), 1), drain_s)
        return _Cluster(client, workers[: len(shares)], shares).run(order)


def send_share(asks: Sequence[Ask], order: Order) -> LoadResult | None:
    """On a worker: send a share; `None` where its start has passed, as when Dask does lost work again."""
    if time.monotonic_ns() > order.start_ns:
        return None
    worker: Any = import_module("distributed").get_worker()
    key = worker.get_current_task()

    def stop() -> bool:
        """Whether nobody waits for this any more: a load must not outlive the command."""
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    return run_load(
        order.target,
        asks,
        timeout_s=order.timeout_s,
        max_connections=order.max_connections,
        drain_s=order.drain_s,
        stop=stop,
        start_ns=order.start_ns,
    )


class _Cluster:
    """The workers of one run, each with its share, in the same order."""

    def __init__(self, client: Any, workers: Sequence[str], shares: Sequence[Share]) -> None:  # noqa: ANN401 - of Dask
        self._client = client
        self._workers = workers
        self._shares = shares

    def run(self, order: Order) -> ClusterResult:
        """Hand out the shares, read the clocks, start, and put together what comes back."""
        # Asks go ahead of the start, so that nothing large travels between its choice and its moment.
        held = [
            self._client.scatter([share.asks], workers=[worker], hash=False)[0]
            for worker, share in zip(self._workers, self._shares, strict=True)
        ]
        clocks = [
            read_clock(self._client, worker, len(share.asks))
            for worker, share in zip(self._workers, self._shares, strict=True)
        ]
        lead_s = _LEAD_S + 2 * sum(clock.error_ms for clock in clocks) / 1e3
        start_ns, started_unix_s = time.monotonic_ns() + int(lead_s * 1e9), time.time() + lead_s
        orders = [replace(order, start_ns=start_ns + round(clock.offset_ms * 1e6)) for clock in clocks]
        sent = [
            self._client.submit(send_share, *work, workers=[worker], pure=False)
            for worker, *work in zip(self._workers, held, orders, strict=True)
        ]
        try:
            found = self._collect(sent)
        finally:
            self._client.cancel(sent, force=True)
        passed_s = max((time.monotonic_ns() - start_ns) / 1e9, 1e-9)
        parts = [
            lost_share(share, one, passed_s) if isinstance(one, str) else one
            for share, one in zip(self._shares, found, strict=True)
        ]
        merged = merge(parts, [share.places for share in self._shares])
        # The wall clocks of the workers may each call the one start otherwise.
        merged = replace(merged, started_unix_s=started_unix_s)
        return ClusterResult(merged, tuple(clocks), tuple(one for one in found if isinstance(one, str)))

    def _collect(self, sent: Sequence[Any]) -> list[LoadResult | str]:
        """The result of each worker, or why there is none; Dask would wait for a lost worker for ever."""
        done: SimpleQueue[int] = SimpleQueue()
        for number, future in enumerate(sent):
            future.add_done_callback(partial(_put, done, number))
        found: dict[int, LoadResult | str] = {}
        while len(found) < len(sent):
            try:
                number = done.get(timeout=_LOOK_S)
            except Empty:
                present = _present(self._client)
                gone = [one for one in range(len(sent)) if self._workers[one] not in present]
                for number in gone:
                    found.setdefault(number, self._said(number, "was lost"))
            else:
                found.setdefault(number, self._fetch(number, sent[number]))
        return [found[number] for number in range(len(sent))]

    def _fetch(self, number: int, future: Any) -> LoadResult | str:  # noqa: ANN401 - of Dask
        killed: type[Exception] = import_module("distributed").KilledWorker
        try:
            result = future.result(timeout=_FETCH_S)
        except (OSError, asyncio.CancelledError, futures.CancelledError, killed):
            return self._said(number, "was lost")
        return self._said(number, "was not ready at the start") if result is None else result

    def _said(self, number: int, what: str) -> str:
        count = len(self._shares[number].asks)
        return f"worker `{self._workers[number]}` {what}: its {count} requests are unfinished"


def lost_share(share: Share, why: str, passed_s: float) -> LoadResult:
    """The part of a worker that gave none: whether its asks were sent is not known, so none has a time."""
    answers = tuple(
        replace(
            unsent(local, ask, ask.at_s if ask.after is None else math.nan), error="unfinished", detail=why
        )
        for local, ask in enumerate(share.asks)
    )
    lag_s = array("f")
    bar = read_instrument(answers, lag_s, [Effort(passed_s, 0.0, 0.0, 0.0, 0)])
    return LoadResult(answers, bar, math.inf, passed_s, lag_s)


def read_clock(client: Any, worker: str, asked: int) -> WorkerClock:  # noqa: ANN401 - of Dask
    """The offset of a worker's clock to ours, over the way that its orders take."""
    try:
        offset_ms, error_ms = read_offset(lambda: int(client.run(_now_ns, workers=[worker])[worker]))
    except OSError as error:
        raise TrtgateError(f"worker `{worker}` was lost before the start", "run it again") from error
    return WorkerClock(
        worker=worker, offset_ms=offset_ms, error_ms=error_ms, round_trips=ROUND_TRIPS, asked=asked
    )


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    try:
        distributed = import_module("distributed")
    except ImportError as error:
        raise UsageError("`distributed` is not installed", "install `trtgate[cluster]`") from error
    try:
        client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        message = f"no Dask scheduler answers at `{address}`"
        raise UsageError(message, "start one or check the address") from error
    with client:
        yield client


def _workers(client: Any, address: str) -> list[str]:  # noqa: ANN401 - of Dask
    """The addresses of all workers, which must run this very version, and nothing else."""
    workers = sorted(_present(client))
    if not workers:
        raise UsageError(f"`{address}` has no workers", f"start some with `dask worker {address}`")
    hint = f"install trtgate {__version__} where the workers run"
    try:
        found = client.run(_look)
    except ImportError as error:
        raise UsageError("a worker of the cluster cannot import trtgate", hint) from error
    for worker in workers:
        version, tasks = found.get(worker, (__version__, 0))
        if version != __version__:
            raise UsageError(f"worker `{worker}` has trtgate {version}", hint)
        if tasks:
            raise UsageError(
                f"worker `{worker}` is at work on {tasks} tasks", "give the load a cluster of its own"
            )
    return workers


def _present(client: Any) -> set[str]:  # noqa: ANN401 - of Dask
    try:
        return set(client.nthreads())
    except OSError as error:
        raise TrtgateError("the Dask scheduler was lost", "what was sent until then is not kept") from error


def _put(done: "SimpleQueue[int]", number: int, _future: object) -> None:
    done.put(number)


def _now_ns() -> int:
    return time.monotonic_ns()


def _look(dask_worker: Any) -> tuple[str, int]:  # noqa: ANN401 - of Dask, which knows it by this name
    """On a worker: its version of trtgate, and how many tasks it runs or has before it."""
    return __version__, dask_worker.state.executing_count + len(dask_worker.state.ready)
