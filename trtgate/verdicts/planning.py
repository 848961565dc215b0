"""Before device time is spent: whether a margin can be decided at all against the noise of the service.

For an equal candidate with normal differences of standard deviation sigma, everything depends on
r = sigma / delta only (`release-gate.md` 2.9); the chances come from a fixed set of simulated sequences.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from trtgate.profile import Gate
from trtgate.record import Record
from trtgate.verdicts.metrics import MetricVerdict
from trtgate.verdicts.stats import FloatArray, level_per_look, student_t_quantile
from trtgate.verdicts.words import percent

REPLICATES = 20_000
POWER = 0.8


class Budget(Record):
    """What looks can decide for one metric; at `smallest_margin` 80 % of equal candidates pass."""

    sigma_d: float
    margin: float
    noise_ratio: float  # sigma_d / ln(1 + margin): plan for 0.7 or less
    chance: float  # that an equal candidate passes
    mean_pairs: float
    smallest_margin: float

    @property
    def usable(self) -> bool:
        """Whether an equal candidate passes in at least 80 % of cases."""
        return self.chance >= POWER

    @property
    def text(self) -> str:
        """One line for a person."""
        return (
            f"noise {self.sigma_d:.3f} against a margin of {percent(self.margin, 1)}: an equal candidate "
            f"passes in {percent(self.chance)} of cases after {self.mean_pairs:.1f} pairs; "
            f"smallest usable margin {percent(self.smallest_margin, 1)}"
        )


def plan_budget(sigma_d: float, margin: float, looks: tuple[int, ...], overall: float = 0.05) -> Budget:
    """The chance that an equal candidate passes, and the smallest usable margin.

    `sigma_d` is the standard deviation of the log ratios over A/A pairs, `margin` a fraction above zero.
    """
    delta = math.log1p(margin)
    needed = _needed(looks, overall)
    room = delta / sigma_d if sigma_d > 0 else math.inf
    passed = [float(np.searchsorted(column, room)) / REPLICATES for column in needed]
    steps = [after - before for before, after in pairwise(looks)]
    return Budget(
        sigma_d=sigma_d,
        margin=margin,
        noise_ratio=sigma_d / delta,
        chance=passed[-1],
        mean_pairs=looks[0] + sum(step * (1 - share) for step, share in zip(steps, passed, strict=False)),
        smallest_margin=math.expm1(
            min(max(float(needed[-1][int(POWER * REPLICATES)]) * sigma_d, 0.0), 700.0)
        ),
    )


def plan_metrics(seen: Sequence[MetricVerdict], gate: Gate, looks: tuple[int, ...]) -> dict[str, Budget]:
    """Budgets of the critical limits, from the noise and baseline that an earlier verdict saw, best one of A/A."""
    noise = {m.name: (m.sd, m.baseline_ms) for m in seen if m.sd is not None and m.baseline_ms}
    budgets = {}
    for limit in gate.metrics:
        sd, baseline_ms = noise.get(limit.name, (None, None))
        if limit.critical and sd is not None and baseline_ms:
            margin = max(limit.margin, limit.floor / baseline_ms)
            budgets[limit.name] = plan_budget(sd, margin, looks, gate.overall_level)
    return budgets


@lru_cache(maxsize=16)
def _needed(looks: tuple[int, ...], overall: float) -> FloatArray:
    """Margins in units of sigma with which replicates pass by each look: (looks, replicates), sorted."""
    level = level_per_look(looks, overall)
    draws = np.random.default_rng(20_260_101).standard_normal((REPLICATES, looks[-1]))
    columns = []
    for n in looks:
        head = draws[:, :n]
        quantile = student_t_quantile(1 - level, n - 1)
        columns.append(head.mean(axis=1) + quantile * head.std(axis=1, ddof=1) / math.sqrt(n))
    return np.sort(np.minimum.accumulate(np.stack(columns), axis=0), axis=1)
