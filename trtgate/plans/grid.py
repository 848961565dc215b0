"""Which buckets to capture: the exact minimum of the expected step time, and the table it is read from."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from trtgate.errors import UsageError
from trtgate.plans.arrays import Ints, Problem
from trtgate.plans.budget import KvBudget
from trtgate.plans.costs import Basis, CostCurve, GraphMemory
from trtgate.plans.histogram import Bins, Kind
from trtgate.plans.weights import Weights, step_range_ms
from trtgate.record import Record


class Constraints(Record):
    """What a grid must keep to.

    `ceiling` is the largest usable size; `pinned` sizes are in every grid, aligned or not; other buckets are
    multiples of `alignment` or the ceiling itself. The smallest grid within `tolerance` (a fraction) of the
    best is chosen.
    """

    max_graphs: int = Field(ge=0)
    ceiling: int = Field(ge=1)
    graph_memory_bytes: int | None = Field(default=None, ge=0)
    capture_s: float | None = Field(default=None, ge=0)
    alignment: int = Field(default=1, ge=1)
    pinned: tuple[int, ...] = ()
    tolerance: float = Field(default=0.01, ge=0)

    @model_validator(mode="after")
    def _pins_fit(self) -> Self:
        if any(not 1 <= size <= self.ceiling for size in self.pinned):
            raise ValueError(f"pinned sizes must lie in 1..{self.ceiling}")
        if len(set(self.pinned)) > self.max_graphs:
            raise ValueError(f"{len(set(self.pinned))} pinned sizes do not fit into {self.max_graphs} graphs")
        return self

    def beside(self, row: "GridRow") -> Self:
        """The same with what `row`, a grid of the other kind, leaves of graph memory and capture time."""
        memory, capture_s = self.graph_memory_bytes, self.capture_s
        left = {
            "graph_memory_bytes": None if memory is None else max(memory - row.graph_bytes, 0),
            "capture_s": None if capture_s is None else max(capture_s - row.capture_s, 0.0),
        }
        return self.model_copy(update=left)


class GridRow(Record):
    """One grid and what it costs, as means over the steps of the histogram.

    `coverage` is the share of steps that are replayed; `padding` is padded over real size, summed over those.
    The `held_out_` figures are the same on the later part of the trace. `pareto` marks a row that no other
    beats both in step time and in graph memory; `fits` whether the budgets allow it.
    """

    name: str
    buckets: tuple[int, ...]
    step_ms: float
    coverage: float
    padding: float
    graph_bytes: int
    capture_s: float
    kv_tokens: int | None = None
    sequences: int | None = None
    held_out_step_ms: float | None = None
    held_out_coverage: float | None = None
    held_out_padding: float | None = None
    pareto: bool = False
    fits: bool = True


class Above(Record):
    """The steps above the largest bucket: their share, what they pay when run eagerly, the largest seen."""

    bucket: int
    share: float
    step_ms: float
    largest_size: int


class GridPlan(Record):
    """The chosen grid within the table it was chosen from.

    `rows` holds the best grid of k buckets for k = 0 (eager) and each further k that is faster than all
    smaller ones and fits the budgets; `rows[chosen]` is the choice. Where sizes were not exact,
    `step_range_ms` is the least and the greatest mean step of the choice that the bins allow; its other
    figures stand at the upper ends. `extrapolated_above` is the last point of a curve where sizes beyond it had
    to be judged.
    """

    kind: Kind
    buckets: tuple[int, ...]
    rows: tuple[GridRow, ...]
    chosen: int
    alternatives: tuple[GridRow, ...]
    basis: Basis
    reason: str
    above: Above
    step_range_ms: tuple[float, float] | None = None
    extrapolated_above: int | None = None

    @property
    def row(self) -> GridRow:
        """The chosen row."""
        return self.rows[self.chosen]


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """All that turns buckets into a row: histograms, curves, memory and budgets."""

    fit: Weights
    held_out: Weights | None
    replay: CostCurve
    memory: GraphMemory
    capture_s: float
    kv: KvBudget | None
    constraints: Constraints

    def row(self, name: str, buckets: tuple[int, ...]) -> GridRow:
        """The row of a grid; Pareto marks come later, from all rows together."""
        outcome = self.fit.outcome(buckets, self.replay)
        later = self.held_out.outcome(buckets, self.replay) if self.held_out else None
        graph_bytes = self.memory.of(len(buckets), max(buckets, default=0))
        return GridRow(
            name=name,
            buckets=buckets,
            step_ms=outcome.step_ms,
            coverage=outcome.coverage,
            padding=outcome.padding,
            graph_bytes=graph_bytes,
            capture_s=self.capture_s * len(buckets),
            kv_tokens=self.kv.tokens(graph_bytes) if self.kv else None,
            sequences=self.kv.sequences(graph_bytes) if self.kv else None,
            held_out_step_ms=later.step_ms if later else None,
            held_out_coverage=later.coverage if later else None,
            held_out_padding=later.padding if later else None,
            fits=max(buckets, default=0) <= self.furthest(len(buckets)),
        )

    def furthest(self, count: int) -> int:
        """The size that the largest of `count` buckets may have within the budgets; -1 where none fits."""
        limits = self.constraints
        if count == 0:
            return limits.ceiling
        if count > limits.max_graphs or (
            limits.capture_s is not None and count * self.capture_s > limits.capture_s
        ):
            return -1
        if limits.graph_memory_bytes is None:
            return limits.ceiling
        sizes = range(1, limits.ceiling + 1)
        budget = limits.graph_memory_bytes
        return bisect_right(sizes, budget, key=lambda size: self.memory.of(count, size)) or -1

    def candidates(self) -> Ints:
        """Sizes that may become buckets, ascending, after a 0 that stands for none.

        Sizes that occur, rounded up to the alignment, suffice where a replay never gets cheaper as it grows;
        where it does, every multiple of the alignment may be the cheapest.
        """
        limits = self.constraints
        wanted = np.zeros(limits.ceiling + 1, np.bool_)
        if np.all(np.diff(self.replay.ms) >= 0):
            sizes = self.fit.sizes[self.fit.sizes <= limits.ceiling]
            wanted[np.minimum(-(-sizes // limits.alignment) * limits.alignment, limits.ceiling)] = True
        else:
            wanted[:: limits.alignment] = True
        wanted[[0, *limits.pinned, limits.ceiling]] = True
        return np.flatnonzero(wanted)

    def best(self) -> list[tuple[int, ...]]:
        """The cheapest grid for k = 0, 1, ... buckets; a k no cheaper than a smaller one is left out."""
        from trtgate.plans.kernels import UNREACHED, best_grids  # here, since it loads the compiler

        candidates = self.candidates()
        places = np.searchsorted(self.fit.sizes, candidates, side="right")
        replay_ms = self.replay.at(candidates)
        unit = min(1e6, 2.0**61 / (self.fit.total * max(replay_ms.max(), self.fit.dearest_eager_ms)))
        above_ms = self.fit.running_eager_ms[-1] - self.fit.running_eager_ms[places]
        count = min(self.constraints.max_graphs, len(candidates) - 1)
        furthest = np.asarray([self.furthest(k) for k in range(count + 1)])
        replay = np.maximum(np.rint(replay_ms * unit), 1).astype(np.int64)
        problem = Problem(
            running_steps=self.fit.running_steps[places],
            replay=replay,
            above=np.rint(above_ms * unit).astype(np.int64),
            pinned=np.isin(candidates, self.constraints.pinned),
            furthest=np.searchsorted(candidates, furthest, side="right") - 1,
            rising=bool(np.all(np.diff(replay[1:]) >= 0)),
        )
        grids, totals = best_grids(problem)
        least = np.minimum.accumulate(np.concatenate(([UNREACHED], totals[:-1])))
        return [tuple(candidates[grids[k, :k]].tolist()) for k in np.flatnonzero(totals < least)]


def choose_grid(  # noqa: PLR0917 - what is chosen, from what, at which costs: each in its place
    kind: Kind,
    fit: Bins,
    held_out: Bins | None,
    replay: CostCurve,
    eager: CostCurve,
    constraints: Constraints,
    *,
    memory: GraphMemory,
    capture_s: float,
    kv: KvBudget | None = None,
    alternatives: Mapping[str, tuple[int, ...]] | None = None,
) -> GridPlan:
    """The grid of least expected step time among all that fit, and the table around it.

    A step of size n is padded to the smallest bucket that holds it and takes `replay` there; above the
    largest bucket it takes `eager` at n. Ties go to fewer, then to smaller buckets. `capture_s` is the time
    to capture one graph; `alternatives` are grids to show beside it, as the runtime would really use them;
    eager and powers of two are always shown. Bins that are not exact count at their upper ends. Refuses
    (`UsageError`) a histogram without steps and budgets that leave no room for the pinned sizes.
    """
    if not fit.steps:
        raise UsageError(f"there are no {kind} steps to choose a grid from", "give a longer trace")
    choice = _Choice(
        fit=Weights.of(fit, eager),
        held_out=Weights.of(held_out, eager) if held_out and held_out.steps else None,
        replay=replay,
        memory=memory,
        capture_s=capture_s,
        kv=kv,
        constraints=constraints,
    )
    rows = [choice.row(grid_name(buckets), buckets) for buckets in choice.best()]
    if not rows:
        raise UsageError(
            f"no {kind} grid with the pinned sizes {list(constraints.pinned)} fits the budgets",
            "raise `graph_memory_bytes` or `capture_s`, or pin fewer sizes",
        )
    asked = {"eager": (), **(alternatives or {}), "powers of two": powers_of_two(constraints.ceiling)}
    others = [choice.row(name, buckets) for name, buckets in asked.items()]
    rows, others = mark_pareto(rows, rows + others), mark_pareto(others, rows + others)
    limit = min(row.step_ms for row in rows) * (1 + constraints.tolerance)
    chosen = next(place for place, row in enumerate(rows) if row.step_ms <= limit)
    buckets = rows[chosen].buckets
    return GridPlan(
        kind=kind,
        buckets=buckets,
        rows=tuple(rows),
        chosen=chosen,
        alternatives=tuple(others),
        basis="measured" if replay.basis == eager.basis == "measured" else "prior",
        reason=_reason(rows, chosen, others[0], constraints.tolerance),
        above=_above(choice, buckets),
        step_range_ms=None if fit.exact else step_range_ms(fit, buckets, replay, eager),
        extrapolated_above=_last_point(choice, eager),
    )


def grid_name(buckets: tuple[int, ...]) -> str:
    """How a row is called by its number of buckets."""
    return {0: "eager", 1: "1 bucket"}.get(len(buckets), f"{len(buckets)} buckets")


def powers_of_two(ceiling: int) -> tuple[int, ...]:
    """1, 2, 4, ... up to `ceiling`, which is in it."""
    return (*(1 << power for power in range((ceiling - 1).bit_length())), ceiling)


def mark_pareto(rows: list[GridRow], among: list[GridRow]) -> list[GridRow]:
    """The rows, each marked where none `among` is better in step time or memory and no worse in the other."""
    best: set[tuple[int, float]] = set()
    least_ms = float("inf")
    for point in sorted((row.graph_bytes, row.step_ms) for row in among):
        if point[1] < least_ms:
            least_ms = point[1]
            best.add(point)
    return [row.model_copy(update={"pareto": (row.graph_bytes, row.step_ms) in best}) for row in rows]


def _above(choice: _Choice, buckets: tuple[int, ...]) -> Above:
    outcome = choice.fit.outcome(buckets, choice.replay)
    return Above(
        bucket=max(buckets, default=0),
        share=1 - outcome.coverage,
        step_ms=outcome.above_ms,
        largest_size=int(choice.fit.sizes[-1]),
    )


def _last_point(choice: _Choice, eager: CostCurve) -> int | None:
    largest = int(choice.fit.sizes[-1])
    padded = min(largest, choice.constraints.ceiling)
    short = [eager.sizes[-1]] if eager.sizes[-1] < largest else []
    short += [choice.replay.sizes[-1]] if choice.replay.sizes[-1] < padded else []
    return min(short, default=None)


def _reason(rows: list[GridRow], chosen: int, eager: GridRow, tolerance: float) -> str:
    row, best = rows[chosen], min(rows, key=lambda row: row.step_ms)
    saved = 1 - row.step_ms / eager.step_ms
    against = f"{abs(saved):.1%} {'below' if saved >= 0 else 'above'} eager"
    if saved < 0:
        against += ", which pinned sizes force"
    if not row.buckets:
        against = "no bucket saves enough to be worth its graph"
    if row is best:
        return f"{row.name} at {row.step_ms:.3f} ms a step: none of the grids that fit is faster; {against}"
    return (
        f"{row.name} at {row.step_ms:.3f} ms a step: the smallest grid within {tolerance:.1%} of the best "
        f"({best.name}, {best.step_ms:.3f} ms); {against}"
    )
