"""What a start showed about graphs: the memory they hold, the time they took, the cache beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trtgate.evidence.curves import memory_of_buckets, memory_of_total
from trtgate.plans.costs import GraphMemory
from trtgate.runtimes.base import Grids, Kind, Step
from trtgate.runtimes.process import Server


@dataclass(frozen=True, slots=True)
class Reading:
    """Figures of one start; `None` and empty tables where the runtime does not report them.

    `phases_ms` and `memory_marks` (bytes) are those at the begin of each phase.
    """

    phases_ms: Mapping[str, float]
    memory_marks: Mapping[str, int]
    capture_ms: Mapping[Kind, Mapping[int, float]]
    bucket_bytes: Mapping[Kind, Mapping[int, int]]
    graph_bytes: int | None
    kv_tokens: int | None
    kv_bytes_per_token: int | None


@dataclass(frozen=True, slots=True)
class GraphReading:
    """What graphs of each kind take, and in words where the figures come from."""

    decode: GraphMemory
    tokens: GraphMemory
    source: str


def read_start(server: Server, steps: Sequence[Step]) -> Reading:
    """What a running server reported at its start, and the cache that its steps show."""
    info = server.info
    return Reading(
        phases_ms=dict(server.phases),
        memory_marks=dict(server.memory_marks),
        capture_ms={kind: _by_bucket(info, kind, "capture_ms") for kind in ("decode", "tokens")},
        bucket_bytes={
            kind: {bucket: int(held) for bucket, held in _by_bucket(info, kind, "memory_bytes").items()}
            for kind in ("decode", "tokens")
        },
        graph_bytes=_whole(info.get("graph_memory_bytes")),
        kv_tokens=server.kv_tokens or max((step.kv_tokens for step in steps if step.kv_tokens), default=None),
        kv_bytes_per_token=_whole(info.get("kv_bytes_per_token")) or None,
    )


def read_graph_memory(
    eager: Reading,
    replay: Reading,
    grids: Grids,
    *,
    kv_bytes_per_token: int,
    kv_fraction: float,
    on_gpu: bool,
) -> GraphReading:
    """Memory of decode and token graphs from the closest source that there is; none without a GPU."""
    if not on_gpu:
        return GraphReading(memory_of_buckets({}), memory_of_buckets({}), "none, there is no GPU")
    if any(replay.bucket_bytes.values()):
        decode, tokens = (memory_of_buckets(replay.bucket_bytes[kind]) for kind in ("decode", "tokens"))
        return GraphReading(decode, tokens, "reported by the runtime for each bucket")
    total, source = _total(eager, replay, kv_bytes_per_token, kv_fraction)
    decode, tokens = memory_of_total(total, (max(grids.decode, default=0), max(grids.tokens, default=0)))
    return GraphReading(decode, tokens, f"{source}, shared out by size")


def _total(eager: Reading, replay: Reading, kv_bytes_per_token: int, kv_fraction: float) -> tuple[int, str]:
    """Bytes of all graphs, and the source.

    The KV cache takes a fixed share of what graphs leave, so that it is smaller by that share of their memory.
    """
    if replay.graph_bytes is not None:
        return replay.graph_bytes, "reported by the runtime as a sum"
    lost_tokens = (eager.kv_tokens or 0) - (replay.kv_tokens or 0)
    if eager.kv_tokens and replay.kv_tokens and lost_tokens > 0:
        return round(lost_tokens * kv_bytes_per_token / kv_fraction), "by the KV cache lost against eager"
    marks = replay.memory_marks
    if "capture" in marks:
        return max(marks.get("ready", 0) - marks["capture"], 0), "by device memory from capture to readiness"
    return 0, "not seen"


def read_capture_s(replay: Reading, kind: Kind, grids: Grids) -> float:
    """Seconds to capture one graph: the runtime's own figures, else the time from first capture to readiness.

    The latter holds whatever else the runtime does in between and is an upper bound.
    """
    own = replay.capture_ms[kind]
    if own:
        return round(sum(own.values()) / len(own) / 1000, 6)
    count = len(grids.decode) + len(grids.tokens)
    begin = replay.phases_ms.get("capture")
    if begin is None or not count:
        return 0.0
    return round(max(replay.phases_ms.get("ready", begin) - begin, 0.0) / count / 1000, 6)


def _by_bucket(info: Mapping[str, Any], kind: Kind, name: str) -> dict[int, float]:
    group = info.get(kind)
    values = group.get(name) if isinstance(group, dict) else None
    if not isinstance(values, dict):
        return {}
    return {
        int(bucket): float(value)
        for bucket, value in values.items()
        if str(bucket).isdigit() and isinstance(value, int | float)
    }


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
