"""A run from several processes with one start, merged as if it were one; for rates that one core cannot hold."""

import multiprocessing
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from trtgate.errors import TrtgateError, UsageError
from trtgate.loads.base import Ask, LoadResult, Target
from trtgate.loads.instrument import Effort, read_instrument
from trtgate.loads.run import run_load

_READY_S = 60.0
_LEAD_S = 0.5


@dataclass(frozen=True, slots=True)
class Share:
    """What one process sends: its asks, and the place of each in the whole."""

    places: tuple[int, ...]
    asks: tuple[Ask, ...]


def run_workers(
    target: Target,
    asks: Sequence[Ask],
    workers: int,
    *,
    timeout_s: float = 300.0,
    max_connections: int = 16_384,
    drain_s: float = 300.0,
) -> LoadResult:
    """As `run_load`, from `workers` processes; a connection limit is shared out, a chain of asks stays together."""
    options = {
        "timeout_s": timeout_s,
        "drain_s": drain_s,
        "max_connections": max(max_connections // workers, 1),
    }
    context = multiprocessing.get_context("spawn")
    shares = share_out(asks, workers)
    pipes, processes = [], []
    try:
        for _ in shares:
            here, there = context.Pipe()
            processes.append(context.Process(target=_work, args=(there,), daemon=True))
            pipes.append(here)
            processes[-1].start()
            there.close()
        for pipe in pipes:
            _await_ready(pipe)
        start_ns = time.monotonic_ns() + int(_LEAD_S * 1e9)
        for pipe, share in zip(pipes, shares, strict=True):
            pipe.send((target, share.asks, options | {"start_ns": start_ns}))
        return merge([_receive(pipe) for pipe in pipes], [share.places for share in shares])
    finally:
        for process in processes:
            process.kill()
            process.join()


def share_out(asks: Sequence[Ask], workers: int) -> list[Share]:
    """Deal the asks to at most `workers` shares in turn; one that follows another goes where that one went."""
    if workers < 1:
        raise UsageError(f"`{workers}` workers", "at least 1")
    owner: list[int] = []
    local: list[int] = []
    shares: list[list[Ask]] = [[] for _ in range(workers)]
    heads = 0
    for ask in asks:
        if ask.after is None:
            owner.append(heads % workers)
            heads += 1
        else:
            owner.append(owner[ask.after])
        share = shares[owner[-1]]
        share.append(ask if ask.after is None else replace(ask, after=local[ask.after]))
        local.append(len(share) - 1)
    places = [tuple(place for place, who in enumerate(owner) if who == number) for number in range(workers)]
    return [Share(place, tuple(share)) for place, share in zip(places, shares, strict=True) if share]


def merge(results: Sequence[LoadResult], places: Sequence[Sequence[int]]) -> LoadResult:
    """One result of parts that had one start: every sample kept, error bar computed from all of them."""
    answers = sorted(
        (
            replace(answer, index=place[answer.index])
            for result, place in zip(results, places, strict=True)
            for answer in result.answers
        ),
        key=lambda answer: answer.index,
    )
    lag_s = array("f")
    for result in results:
        lag_s.extend(result.lag_s)
    return LoadResult(
        answers=tuple(answers),
        instrument=read_instrument(answers, lag_s, [_effort(result) for result in results]),
        started_unix_s=min(result.started_unix_s for result in results),
        duration_s=max(result.duration_s for result in results),
        lag_s=lag_s,
    )


def _effort(result: LoadResult) -> Effort:
    bar = result.instrument
    return Effort(
        duration_s=result.duration_s,
        busy_s=bar.cpu * result.duration_s,
        starved_s=bar.starved * result.duration_s,
        clock_step_s=bar.clock_step_ms / 1e3,
        blind=round(bar.blind * sum(len(answer.chunk_s) for answer in result.answers)),
    )


def _work(pipe: Connection) -> None:
    """The life of a worker process: say ready, take a share, send the result or the error."""
    pipe.send(None)
    target, asks, options = pipe.recv()
    try:
        pipe.send(run_load(target, asks, **options))
    except TrtgateError as error:
        pipe.send(error)


def _await_ready(pipe: Connection) -> None:
    if not pipe.poll(_READY_S):
        raise TrtgateError(f"a load worker did not start within {_READY_S:.0f} s", "use fewer workers")
    _take(pipe)


def _receive(pipe: Connection) -> LoadResult:
    got = _take(pipe)
    if isinstance(got, TrtgateError):
        raise got
    assert isinstance(got, LoadResult)
    return got


def _take(pipe: Connection) -> object:
    try:
        return pipe.recv()
    except EOFError:
        raise TrtgateError("a load worker died", "was it killed for memory? use fewer workers") from None
