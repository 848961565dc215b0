"""Records the iteration rows that a live `/metrics` of TensorRT-LLM gives, each once, as steps by size."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from trtgate.errors import TraceError
from trtgate.evidence.recording import Log, finished
from trtgate.plans.histogram import Histogram, from_steps, merge
from trtgate.runtimes.stats import BUFFER_ROWS
from trtgate.traces.iterstats import row_of
from trtgate.traces.rows import Origin
from trtgate.traces.steps import BAD_ITERATION, WIDTH, StepRows, step_rows
from trtgate.traces.stepstream import stream_steps

EARLIER = "iteration before the recording"
QUIET_S = 10.0
HINT = "send requests, set `enable_iter_perf_stats: true`, let nobody else read it"


def record_rows(log: Log) -> Histogram:
    """The histogram of iteration rows; memory stays flat however long it takes."""
    digest: Future[str] = Future()
    origin = Origin(Path(log.wanted.name), "trtllm-metrics", "none", digest)
    total: Histogram | None = None
    for steps in stream_steps(_row_parts(log, digest), origin, merge_ranks=True, hint=HINT):
        found = from_steps(steps)
        total = found if total is None else merge(total, found)
    assert total is not None
    return finished(total, log)


def _row_parts(log: Log, digest: "Future[str]") -> Iterator[StepRows]:
    """What each reading brings; the server empties its queue, so that no row comes twice."""
    whole, follow, steps = hashlib.sha256(), Follower(log.losses), 0
    earlier = rows_of(log.first) or []
    follow.see(earlier)
    for answer in log.answers():
        rows = rows_of(answer)
        if rows is None:
            log.fail(f"`{log.wanted.page}` gives no list of iterations")
            continue
        follow.see(rows)
        lines = [json.dumps(row, separators=(",", ":")) for row in rows]
        whole.update("".join(f"{line}\n" for line in lines).encode())
        log.keep(lines)
        part = _step_rows(rows, log.wanted.draft_len)
        steps += len(part.columns[0])
        log.show(steps)
        if not steps and log.elapsed_s >= QUIET_S:
            log.say(f"no iteration with work yet: {HINT}")
        yield part
    digest.set_result(whole.hexdigest())
    if not steps:
        raise TraceError(f"`{log.wanted.page}` gave no iteration with work in {log.elapsed_s:.0f} s", HINT)
    last = _step_rows([], 0)
    last.dropped.update({EARLIER: len(earlier)} if earlier else {})
    yield last


class Follower:
    """Counts iterations that are missing between rows, for each rank apart; a full queue has dropped the oldest."""

    def __init__(self, losses: Counter[str]) -> None:
        self._losses = losses
        self._last: dict[int, int] = {}

    def see(self, rows: list[Any]) -> None:
        """Look at the numbers of one reading."""
        full = len(rows) >= BUFFER_ROWS
        for row in rows:
            number = row.get("iter") if isinstance(row, dict) else None
            if not isinstance(number, int):
                continue
            rank = row.get("attentionDpRank", row.get("rank"))
            rank = rank if isinstance(rank, int) else 0
            last = self._last.get(rank)
            self._last[rank] = number
            if last is not None and number < last:
                self._losses["restart(s) of the server"] += 1
            elif last is not None and number > last + 1:
                why = (
                    f"iterations lost: more than {BUFFER_ROWS} passed between two readings"
                    if full
                    else "iterations missing between rows: another reader may empty `/metrics`"
                )
                self._losses[why] += number - last - 1


def _step_rows(rows: list[Any], draft_len: int) -> StepRows:
    """Generation requests stand for their tokens: a request counts once, and drafts are added to it."""
    numbers = [row_of(row) for row in rows if isinstance(row, dict)]
    table = np.array(numbers, np.float64).reshape(-1, WIDTH)
    table[:, 5] *= 1 + draft_len
    part = step_rows(table, draft_len=draft_len, padding_known=False)
    part.dropped.update({BAD_ITERATION: len(rows) - len(numbers)})
    return part


def rows_of(text: str) -> list[Any] | None:
    """The rows of one answer; `None` where it is no list."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None
