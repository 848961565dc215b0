"""Load, cache and token counts of a server from its Prometheus page, under whatever name its version gives them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import requests
from prometheus_client.parser import text_string_to_metric_families

from trtgate.runtimes.ready import PROBE_TIMEOUT_S

# Newest name first. Names vanish two minor versions after their successor came.
ALIASES: dict[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running", "trtllm_num_requests_running", "num_requests_running"),
    "waiting": ("vllm:num_requests_waiting", "trtllm_num_requests_waiting", "num_requests_waiting"),
    "kv_used_fraction": (
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "trtllm_kv_cache_utilization",
        "kv_cache_utilization",
    ),
    "preemptions": ("vllm:num_preemptions_total", "vllm:num_preemptions"),
    "prompt_tokens": ("vllm:prompt_tokens_total", "trtllm_prompt_tokens_total", "vllm:prompt_tokens"),
    "generation_tokens": (
        "vllm:generation_tokens_total",
        "trtllm_generation_tokens_total",
        "vllm:generation_tokens",
    ),
    "reuse_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "reuse_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "reused_blocks": ("trtllm_kv_cache_reused_blocks_total", "kv_cache_reused_blocks_total"),
    "missed_blocks": ("trtllm_kv_cache_missed_blocks_total", "kv_cache_missed_blocks_total"),
    "steps": ("vllm:iteration_tokens_total_count",),
}
PATHS = ("/prometheus/metrics", "/metrics")


@dataclass(frozen=True, slots=True)
class Gauges:
    """One reading; `None` is unmeasured, never nought. Counters run since the server's start."""

    running: float | None = None
    waiting: float | None = None
    kv_used_fraction: float | None = None
    preemptions: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    reuse_queries: float | None = None
    reuse_hits: float | None = None
    reused_blocks: float | None = None
    missed_blocks: float | None = None
    steps: float | None = None
    skipped: int = 0

    @property
    def reuse_share(self) -> float | None:
        """Share of prompt tokens, or of blocks, that came from the cache since the start."""
        for hits, total in (
            (self.reuse_hits, self.reuse_queries),
            (self.reused_blocks, _sum(self.reused_blocks, self.missed_blocks)),
        ):
            if hits is not None and total:
                return hits / total
        return None


def parse_gauges(text: str) -> Gauges:
    """A reading from an exposition; samples that are no finite number are left out and counted.

    Series of several engines are added, a fraction is averaged; labels with the model's name are not looked at, since
    some servers write `undefined` there.
    """
    values: dict[str, list[float]] = {}
    skipped = 0
    for name, value in _samples(text):
        if math.isfinite(value):
            values.setdefault(name, []).append(value)
        else:
            skipped += 1
    found = {}
    for field, names in ALIASES.items():
        series = next((values[name] for name in names if name in values), None)
        if series is not None:
            found[field] = sum(series) / (len(series) if field == "kv_used_fraction" else 1)
    return Gauges(**found, skipped=skipped)


def read_gauges(session: requests.Session, url: str) -> Gauges | None:
    """A reading from a server; `None` where it has no such page."""
    for path in PATHS:
        try:
            answer = session.get(f"{url}{path}", timeout=PROBE_TIMEOUT_S)
        except requests.RequestException:
            return None
        if answer.ok and "json" not in answer.headers.get("Content-Type", ""):
            return parse_gauges(answer.text)
    return None


def _samples(text: str) -> Iterable[tuple[str, float]]:
    """The samples of all lines that can be read; a line that cannot be is passed over as one that is no number."""
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        try:
            for family in text_string_to_metric_families(line + "\n"):
                for sample in family.samples:
                    yield sample.name, float(sample.value)
        except ValueError:
            yield line, math.nan


def _sum(*values: float | None) -> float | None:
    return None if any(value is None for value in values) else sum(value or 0.0 for value in values)
