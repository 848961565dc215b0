"""Statistics rows in the shape of `trtllm-serve`'s `/metrics`, turned into steps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trtgate.runtimes.base import Grids, Row, Step, next_bucket


def steps_from_rows(rows: Sequence[Row], grids: Grids, *, padding: bool, draft_len: int = 0) -> list[Step]:
    """One step for each row with scheduled requests; unknown keys are ignored, absent ones are unknown.

    Whether a graph was replayed is reported under `graph` or follows from the sizes; `padding` says whether
    decode batches are padded to the next bucket (token steps always are).
    Source: TensorRT-LLM `cuda_graph_runner.py`.
    """
    return [step for row in rows if (step := _step(row, grids, padding, draft_len)) is not None]


def predict(kind: str, size: int, grids: Grids, *, padding: bool) -> tuple[int | None, bool, str | None]:
    """Bucket, whether it is replayed, and why not, for a step of `size` under captured `grids`."""
    buckets = grids.decode if kind == "decode" else grids.tokens
    if not buckets:
        return None, False, "graphs off"
    bucket = next_bucket(buckets, size)
    if bucket is None:
        return None, False, "above largest bucket"
    if kind == "decode" and not padding and bucket != size:
        return None, False, "padding off"
    return bucket, True, None


def refined(step: Step, row: Row) -> Step | None:
    """A step joined with the iteration line of the log: its time on the host, and padding really seen.

    `num_generation_tokens` counts padded requests and `num_scheduled_requests` does not, so that more of the
    former proves a replay. `None` where counts differ: numbers of the two can be one apart in old versions.
    """
    log = row["log"]
    requests = step.context_requests + step.generation_requests
    if log["scheduled"] not in {None, requests} or bool(log["context_requests"]) != (step.kind == "tokens"):
        return None
    computed = log["generation_tokens"]
    if step.predicted and step.kind == "decode" and log["scheduled"] is not None and computed > step.size:
        step = replace(step, bucket=computed, replayed=True, reason=None, predicted=False)
    return replace(step, step_ms=step.step_ms if step.step_ms is not None else log["host_ms"])


def _step(row: Row, grids: Grids, padding: bool, draft_len: int) -> Step | None:
    batch = _dict(row.get("inflightBatchingStats"))
    contexts, generations = _count(batch, "numContextRequests"), _count(batch, "numGenRequests")
    if contexts + generations == 0:
        return None
    tokens = _count(batch, "numCtxTokens") + generations * (1 + draft_len)
    kind, size = ("tokens", tokens) if contexts else ("decode", generations)
    graph = row.get("graph")
    bucket: int | None
    replayed: bool | None
    reason: str | None
    if isinstance(graph, dict) and graph.get("kind") == kind:
        size, bucket = int(graph.get("size", size)), graph.get("bucket")
        replayed, reason, predicted = bool(graph.get("replayed")), graph.get("reason"), False
    else:
        bucket, replayed, reason = predict(kind, size, grids, padding=padding)
        predicted = True
    cache = _dict(row.get("kvCacheStats"))
    block = cache.get("tokensPerBlock")
    return Step(
        iteration=int(row.get("iter", -1)),
        kind="tokens" if contexts else "decode",
        size=size,
        bucket=bucket,
        replayed=replayed,
        reason=reason,
        predicted=predicted,
        step_ms=_step_ms(row),
        queued=row.get("numQueuedRequests"),
        memory_bytes=row.get("gpuMemUsage") or None,
        kv_tokens=_tokens(cache.get("maxNumBlocks"), block),
        kv_used_tokens=_tokens(cache.get("usedNumBlocks"), block),
        context_requests=contexts,
        generation_requests=generations,
        paused=batch.get("numPausedRequests"),
    )


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(values: dict[str, Any], key: str) -> int:
    value = values.get(key)
    return int(value) if isinstance(value, int | float) else 0


def _tokens(blocks: int | None, block_tokens: int | None) -> int | None:
    return blocks * block_tokens if blocks and block_tokens else 0 if blocks == 0 and block_tokens else None


def _step_ms(row: Row) -> float | None:
    """The time of one loop on the host; `iterLatencyMS` spans about two loops and is never taken for it."""
    value = row.get("hostStepTimeMS")
    return float(value) if isinstance(value, int | float) and value > 0 else None
