"""How an iteration is told: a row of `/metrics` and a line of the log, in TensorRT-LLM's words."""

import sys
from datetime import UTC, datetime
from typing import Any

from .engine import Iteration
from .settings import KV_BLOCK_TOKENS, LEVELS, Settings


class Logger:
    """Prints `[MM/DD/YYYY-HH:MM:SS] [TRT-LLM] [RANK 0] [I] text` to stdout, for the levels wanted."""

    def __init__(self, level: str) -> None:
        self.wanted = "EWIV"[: LEVELS[level]]

    def __call__(self, letter: str, text: str) -> None:
        """Print one line at level `E`, `W`, `I` or `V`."""
        if letter in self.wanted:
            now = datetime.now(UTC).strftime("%m/%d/%Y-%H:%M:%S")
            sys.stdout.write(f"[{now}] [TRT-LLM] [RANK 0] [{letter}] {text}\n")
            sys.stdout.flush()


def iteration_line(row: Iteration) -> str:
    """The iteration log of TensorRT-LLM 1.1 and 1.2; padding counts as generation tokens, as it does there."""
    padded = row.use.kind == "decode" and row.use.bucket
    states = {
        "num_ctx_requests": row.contexts,
        "num_ctx_tokens": row.context_tokens,
        "num_generation_tokens": padded or row.generations,
    }
    previous = "N/A" if row.previous_ms is None else f"{row.previous_ms}ms"
    at = datetime.fromtimestamp(row.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return (
        f"iter = {row.number}, global_rank = 0, rank = 0, currank_total_requests = {row.active}/{row.active}, "
        f"host_step_time = {row.host_ms}ms, prev_device_step_time = {previous}, timestamp = {at}, "
        f"num_scheduled_requests: {row.contexts + row.generations}, states = {states}"
    )


def metrics_row(row: Iteration, settings: Settings, blocks: int, memory_bytes: int) -> dict[str, Any]:
    """One element of the array that `/metrics` answers, with `graph` saying whether the iteration replayed."""
    scheduled = row.contexts + row.generations
    return {
        "timestamp": datetime.fromtimestamp(row.at, UTC).strftime("%m-%d-%Y %H:%M:%S.%f"),
        "iter": row.number,
        "iterLatencyMS": row.host_ms,
        "hostStepTimeMS": row.host_ms,
        "prevDeviceStepTimeMS": row.previous_ms,
        "gpuForwardTimeMS": row.device_ms,
        "newActiveRequestsQueueLatencyMS": row.queue_ms,
        "numNewActiveRequests": row.admitted,
        "numActiveRequests": row.active,
        "numQueuedRequests": row.queued,
        "numCompletedRequests": row.completed,
        "maxNumActiveRequests": settings.max_batch_size,
        "gpuMemUsage": memory_bytes,
        "cpuMemUsage": 0,
        "pinnedMemUsage": 0,
        "kvCacheStats": {
            "maxNumBlocks": blocks,
            "freeNumBlocks": row.free_blocks,
            "usedNumBlocks": blocks - row.free_blocks,
            "tokensPerBlock": KV_BLOCK_TOKENS,
            "reusedBlocks": 0,
            "cacheHitRate": 0.0,
        },
        "inflightBatchingStats": {
            "numScheduledRequests": scheduled,
            "numContextRequests": row.contexts,
            "numGenRequests": row.generations,
            "numPausedRequests": 0,
            "numCtxTokens": row.context_tokens,
            "microBatchId": 0,
            "avgNumDecodedTokensPerIter": 0.0,
        },
        "specDecodingStats": None,
        "graph": {
            "kind": row.use.kind,
            "bucket": row.use.bucket,
            "size": row.use.size,
            "replayed": row.use.replayed,
            "reason": row.use.reason,
        },
    }
