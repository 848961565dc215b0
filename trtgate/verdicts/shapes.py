"""Step time at equal shape, as advisory evidence: quieter than the tails, blind to queueing and clients.

`release-gate.md` 2.9: arrival and queueing noise are gone, so a slower engine shows in few pairs.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from trtgate.evidence.ledger import GraphCounts, LedgerHead, Pair
from trtgate.verdicts.looks import estimate, metric_series
from trtgate.verdicts.metrics import MetricVerdict
from trtgate.verdicts.stats import level_per_look
from trtgate.verdicts.words import percent

KINDS = ("decode", "tokens")
MIN_STEPS = 5  # of a shape in either arm, below which its median is an accident


class Matched(NamedTuple):
    """Mean step time of both arms over the shapes that both ran, weighted by the steps of both together."""

    baseline_ms: float
    candidate_ms: float
    steps: int
    all_steps: int
    ratios: Mapping[str, float]  # by shape


def match_steps(baseline: GraphCounts, candidate: GraphCounts, kind: str) -> Matched | None:
    """Compare the replayed steps of one kind in one pair; None where no shape has enough steps."""
    counts = {
        shape: baseline.step_counts.get(shape, 0) + candidate.step_counts.get(shape, 0)
        for shape in sorted(baseline.step_counts.keys() | candidate.step_counts.keys())
        if shape.startswith(f"{kind}:")
    }
    shared = [shape for shape in counts if all(_usable(arm, shape) for arm in (baseline, candidate))]
    steps = sum(counts[shape] for shape in shared)
    if not steps:
        return None
    means = [sum(counts[s] * arm.step_ms[s] for s in shared) / steps for arm in (baseline, candidate)]
    ratios = {shape: candidate.step_ms[shape] / baseline.step_ms[shape] for shape in shared}
    return Matched(means[0], means[1], steps, sum(counts.values()), ratios)


def shape_verdicts(pairs: Sequence[Pair], head: LedgerHead) -> tuple[MetricVerdict, ...]:
    """One advisory line for decode and one for token steps, against the tightest margin of the gate."""
    verdicts = [_shape_verdict(kind, pairs, head) for kind in KINDS]
    return tuple(verdict for verdict in verdicts if verdict is not None)


def _usable(counts: GraphCounts, shape: str) -> bool:
    value = counts.step_ms.get(shape, 0.0)
    return counts.step_counts.get(shape, 0) >= MIN_STEPS and math.isfinite(value) and value > 0


def _shape_verdict(kind: str, pairs: Sequence[Pair], head: LedgerHead) -> MetricVerdict | None:
    arms = [(p.baseline.graphs, p.candidate.graphs if p.candidate else None) for p in pairs]
    matched = [match_steps(b, c, kind) for b, c in arms if b is not None and c is not None]
    found = [item for item in matched if item is not None]
    if len(found) < 2:
        return None
    margin = min(limit.margin for limit in head.gate.metrics)
    baseline, candidate = (
        np.array(x) for x in zip(*((m.baseline_ms, m.candidate_ms) for m in found), strict=True)
    )
    name = f"{kind} step_ms"
    level = level_per_look(head.looks, head.gate.overall_level)
    series = metric_series(name, baseline, candidate, (margin, 0.0))
    result = estimate(series, len(found), level, 1, head.gate.overall_level)
    state = (
        "within its limit" if result.passed else "over its limit" if result.lower > result.delta else "open"
    )
    return MetricVerdict(
        name=name,
        state="advisory",
        reason=f"{state}; {_coverage(found)}",
        critical=False,
        ratio=math.exp(result.mean),
        upper_ratio=math.exp(min(result.upper, 700.0)),
        lower_ratio=math.exp(result.lower),
        limit_ratio=1 + margin,
        pairs=len(found),
        samples_min=min(item.steps for item in found),
        baseline_ms=float(np.exp(np.mean(np.log(baseline)))),
        candidate_ms=float(np.exp(np.mean(np.log(candidate)))),
        level=level,
        confidence=1 - head.gate.overall_level,
        sd=result.sd,
    )


def _coverage(found: Sequence[Matched]) -> str:
    """Say which share of the steps was compared, and which shape got slowest over all pairs."""
    shapes: dict[str, list[float]] = {}
    for item in found:
        for shape, ratio in item.ratios.items():
            shapes.setdefault(shape, []).append(math.log(ratio))
    everywhere = {shape: np.mean(logs) for shape, logs in shapes.items() if len(logs) == len(found)}
    share = sum(item.steps for item in found) / sum(item.all_steps for item in found)
    text = f"{percent(share)} of the steps at {len(shapes)} equal shape{'s' if len(shapes) > 1 else ''}"
    if not everywhere:
        return text
    slowest = max(sorted(everywhere), key=lambda shape: everywhere[shape])
    return f"{text}, slowest `{slowest}` {math.exp(everywhere[slowest]):.3f}x"
