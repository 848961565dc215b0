"""What a given grid costs on a histogram: step time, coverage and padding, from running sums."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from trtgate.plans.arrays import Ints
from trtgate.plans.costs import CostCurve
from trtgate.plans.histogram import Bins


@dataclass(frozen=True, slots=True)
class Outcome:
    """Means over the steps of a histogram under one grid.

    `coverage` is the share of steps that are replayed, `padding` the padded over the real size summed over
    those (1 where nothing is padded), `above_ms` the mean eager time of the others, 0 where there are none.
    """

    step_ms: float
    coverage: float
    padding: float
    above_ms: float


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Steps by size, ascending, with running sums (one longer, from 0) of steps, sizes and eager times."""

    sizes: Ints
    running_steps: Ints
    running_sizes: Ints
    running_eager_ms: NDArray[np.float64]
    dearest_eager_ms: float

    @classmethod
    def of(cls, bins: Bins, eager: CostCurve) -> Self:
        """From bins; a bin that is not exact stands at its upper end, which never costs less."""
        order = np.argsort(np.asarray(bins.high, np.int64), kind="stable")
        sizes = np.asarray(bins.high, np.int64)[order]
        steps = np.asarray(bins.steps, np.int64)[order]
        eager_ms = eager.at(sizes)
        zero = np.zeros(1, np.int64)
        return cls(
            sizes=sizes,
            running_steps=np.concatenate((zero, np.cumsum(steps))),
            running_sizes=np.concatenate((zero, np.cumsum(steps * sizes))),
            running_eager_ms=np.concatenate((np.zeros(1), np.cumsum(eager_ms * steps))),
            dearest_eager_ms=float(eager_ms.max()),
        )

    @property
    def total(self) -> int:
        """The number of steps."""
        return int(self.running_steps[-1])

    def between(self, below: int, largest: int) -> tuple[int, int]:
        """The steps of sizes above `below` up to `largest`, and the sum of their sizes."""
        first, last = np.searchsorted(self.sizes, (below, largest), side="right")
        return (
            int(self.running_steps[last] - self.running_steps[first]),
            int(self.running_sizes[last] - self.running_sizes[first]),
        )

    def outcome(self, buckets: tuple[int, ...], replay: CostCurve) -> Outcome:
        """What the ascending `buckets` cost: each step goes to the next one, and eager above the largest."""
        padded = np.asarray(buckets, np.int64)
        ends = np.searchsorted(self.sizes, padded, side="right")
        last = ends[-1] if buckets else 0
        steps = self.running_steps[ends]
        groups = steps - np.concatenate(([0], steps[:-1]))
        covered_ms = float(groups @ replay.at(padded))
        above_ms = float(self.running_eager_ms[-1] - self.running_eager_ms[last])
        covered, real = int(self.running_steps[last]), int(self.running_sizes[last])
        uncovered = self.total - covered
        return Outcome(
            step_ms=(covered_ms + above_ms) / self.total,
            coverage=covered / self.total,
            padding=int(groups @ padded) / real if real else 1.0,
            above_ms=above_ms / uncovered if uncovered else 0.0,
        )


def step_range_ms(
    bins: Bins, buckets: tuple[int, ...], replay: CostCurve, eager: CostCurve
) -> tuple[float, float]:
    """The least and the greatest mean step that bins allow when each step may lie anywhere in its bin."""
    sizes = np.arange(max(bins.high) + 1)
    places = np.searchsorted(np.asarray(buckets, np.int64), sizes)
    padded = replay.at(np.asarray((*buckets, 1)))[np.minimum(places, len(buckets))]
    cost = np.where(places < len(buckets), padded, eager.at(sizes))
    ranges = list(zip(bins.low, bins.high, bins.steps, strict=True))
    least = sum(steps * float(cost[low : high + 1].min()) for low, high, steps in ranges)
    most = sum(steps * float(cost[low : high + 1].max()) for low, high, steps in ranges)
    return least / bins.total, most / bins.total
