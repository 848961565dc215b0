"""Ledgers made up for the judge: from log ratios of one number per pair, quickly and without a clock."""

from collections.abc import Callable, Sequence

import numpy as np

from trtgate.evidence.ledger import GraphCounts, Ledger, LedgerHead, Measurement, Pair, Quantiles
from trtgate.profile import Gate, MetricLimit
from trtgate.verdicts.judge import next_step

TTFT = MetricLimit(metric="ttft_ms", quantile="p95")
LOOKS = (6, 8, 10, 12)

Change = Callable[[Measurement], Measurement]


def gate(*metrics: MetricLimit, **limits: float) -> Gate:
    return Gate(metrics=metrics or (TTFT,), **limits)


def head(policy: Gate | None = None, looks: tuple[int, ...] = LOOKS) -> LedgerHead:
    return LedgerHead(
        name="demo",
        candidate_sha256="c" * 64,
        baseline="release 1",
        baseline_sha256="b" * 64,
        gate=policy or gate(),
        looks=looks,
        max_send_lateness_ms=50.0,
    )


def run(arm: str, values_ms: dict[str, float], samples: int = 3000, **fields) -> Measurement:
    """A run in which each quantile of a metric is its value; `fields` change what is recorded."""
    quantiles = {
        name: Quantiles(samples=samples, p50=value, p95=value, p99=value, maximum=value)
        for name, value in values_ms.items()
    }
    recorded = {
        "arm": arm,
        "title": arm,
        "started": "2026-01-01T00:00:00Z",
        "trace_sha256": "t" * 64,
        "requests": 3000,
        "succeeded": 3000,
        "checked_answers": 3000,
        "output_tokens": 90_000,
        "work_sha256": "w" * 64,
        "quantiles": quantiles,
        "graphs": GraphCounts(decode_steps=1000, decode_replayed=1000, real_tokens=100, padded_tokens=110),
        "memory_bytes": 1_000_000,
        "kv_tokens": 50_000,
        "start_ms": {"load": 100.0},
        "send_lateness_p99_ms": 1.0,
    }
    return Measurement.model_validate(recorded | fields)


def pair(
    index: int, d: float = 0.0, baseline_ms: float = 100.0, metrics: Sequence[str] = ("ttft_ms",)
) -> Pair:
    return Pair(
        index=index,
        order="baseline-first" if index % 2 else "candidate-first",
        seed=index,
        segment_s=(0.0, 60.0),
        baseline=run("baseline", dict.fromkeys(metrics, baseline_ms)),
        candidate=run("candidate", dict.fromkeys(metrics, baseline_ms * float(np.exp(d)))),
    )


def ledger(d: Sequence[float], policy: Gate | None = None, looks: tuple[int, ...] = LOOKS) -> Ledger:
    """One pair for each log ratio, equal for all metrics of the policy."""
    policy = policy or gate()
    metrics = sorted({limit.metric for limit in policy.metrics})
    return Ledger(
        head=head(policy, looks), pairs=tuple(pair(i, x, metrics=metrics) for i, x in enumerate(d, 1))
    )


def changed(source: Ledger, index: int, arm: str = "candidate", **fields) -> Ledger:
    """The ledger with other fields in one arm of pair `index` (0: of all pairs)."""
    pairs = tuple(
        p.model_copy(update={arm: getattr(p, arm).model_copy(update=fields)}) if index in (0, p.index) else p
        for p in source.pairs
    )
    return source.model_copy(update={"pairs": pairs})


def scaled(source: Ledger, factor: float, arm: str = "candidate") -> Ledger:
    """The ledger with all latencies of one arm multiplied."""

    def slower(measurement: Measurement) -> Measurement:
        quantiles = {
            name: q.model_copy(update={p: getattr(q, p) * factor for p in ("p50", "p95", "p99", "maximum")})
            for name, q in measurement.quantiles.items()
        }
        return measurement.model_copy(update={"quantiles": quantiles})

    pairs = tuple(p.model_copy(update={arm: slower(getattr(p, arm))}) for p in source.pairs)
    return source.model_copy(update={"pairs": pairs})


def sequence(draws: Sequence[float], **kwargs) -> Ledger:
    """A canary as it would run: pairs are added until `next_step` says stop."""
    whole = ledger(draws, **kwargs)
    due = [n for n in whole.head.looks if n <= len(draws)]
    for n in due:
        part = whole.model_copy(update={"pairs": whole.pairs[:n]})
        if next_step(part).action == "stop":
            return part
    return whole
