"""From visits to cost curves and graph memory; pure functions, nothing is started here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from trtgate.errors import InvalidMeasurementError
from trtgate.evidence.sweep import FEWEST
from trtgate.plans.costs import CostCurve, GraphMemory
from trtgate.runtimes.base import Kind, Step

Mode = Literal["eager", "replay"]
MAD_TO_SD = 1.4826  # of a normal distribution; the median absolute deviation ignores a few slow steps

NOISY = 0.25  # of the median: a spread that is not quiet, and the share of such points that is too many


@dataclass(frozen=True, slots=True)
class Seen:
    """One visit: the times of its steps of exactly the wanted size; none where the size was missed."""

    kind: Kind
    size: int
    steps_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """What a step of one size takes: the median over `visits` visits, and how far single steps lie from it."""

    size: int
    ms: float
    spread_ms: float
    visits: int
    steps: int


def exact_times(steps: Iterable[Step], kind: Kind, size: int, mode: Mode) -> tuple[float, ...]:
    """Times of the steps of exactly this size: run eagerly, or replayed at a bucket that adds no padding."""
    return tuple(
        step.step_ms
        for step in steps
        if (step.kind, step.size) == (kind, size)
        and step.step_ms is not None
        and step.step_ms > 0
        and (not step.replayed if mode == "eager" else step.replayed and step.bucket == size)
    )


def points_of(seen: Sequence[Seen], kind: Kind) -> tuple[Point, ...]:
    """One point a size, ascending; the first visit of a size that had steps is cold and left out.

    `ms` is the median over visits of the median of a visit, so that a long visit counts once; `spread_ms` is
    1.4826 times the median distance of all steps from it.
    """
    found: dict[int, list[tuple[float, ...]]] = {}
    for one in seen:
        if one.kind == kind and one.steps_ms:
            found.setdefault(one.size, []).append(one.steps_ms)
    return tuple(_point(size, visits[1:]) for size, visits in sorted(found.items()) if len(visits) > 1)


def _point(size: int, visits: Sequence[tuple[float, ...]]) -> Point:
    middle = median(median(times) for times in visits)
    every = [ms for times in visits for ms in times]
    spread = MAD_TO_SD * median(abs(ms - middle) for ms in every)
    return Point(size, round(middle, 6), round(spread, 6), len(visits), len(every))


def curve_of(points: Sequence[Point], kind: Kind, mode: Mode, ceiling: int) -> CostCurve:
    """The curve through measured points; refuses (`InvalidMeasurementError`) fewer than two.

    One point is enough where no size but 1 exists.
    """
    if len(points) < min(FEWEST, max(ceiling, 1)):
        raise InvalidMeasurementError(
            f"{len(points)} of the {kind} sizes could be measured with {mode} steps, a curve needs {FEWEST}",
            "raise `--repeat`, and see whether the runtime reports the time of its steps",
        )
    return CostCurve(
        sizes=tuple(point.size for point in points),
        ms=tuple(point.ms for point in points),
        basis="measured",
        spread=tuple(point.spread_ms for point in points),
    )


def noise(points: Sequence[Point]) -> str | None:
    """A sentence where steps of one size differ so much that the choice of buckets would follow chance."""
    loud = [point for point in points if point.spread_ms > NOISY * point.ms]
    if len(loud) <= len(points) * NOISY:
        return None
    return (
        f"noisy: at {len(loud)} of {len(points)} points single steps lie {NOISY:.0%} and more from the median; "
        "measure on a quiet machine, or raise `--repeat`"
    )


def memory_of_buckets(bytes_by_bucket: Mapping[int, int]) -> GraphMemory:
    """Graph memory from what each captured bucket took; the largest holds the pool, each other one its mean.

    The sum over the measured grid is kept. With one grid a fixed part cannot be told from one that grows with
    the size, so that all of the pool is taken to grow.
    """
    if not bytes_by_bucket:
        return GraphMemory(largest_bytes_per_size=0.0, each_bytes=0)
    largest = max(bytes_by_bucket)
    total = max(sum(bytes_by_bucket.values()), 0)
    others = [taken for bucket, taken in bytes_by_bucket.items() if bucket != largest]
    each = max(sum(others) // len(others), 0) if others else 0
    each = min(each, total // len(bytes_by_bucket))
    pool = total - each * len(bytes_by_bucket)
    return GraphMemory(largest_bytes_per_size=pool / largest, each_bytes=each)


def memory_of_total(total_bytes: int, tops: Sequence[int]) -> tuple[GraphMemory, ...]:
    """Graph memory of each kind where only the sum is known: one pool that grows with the largest buckets `tops`."""
    rate = max(total_bytes, 0) / max(sum(tops), 1)
    return tuple(GraphMemory(largest_bytes_per_size=rate, each_bytes=0) for _ in tops)
