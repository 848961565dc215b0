"""The decision over several looks, on plain arrays: which series are shown to stay within their limit.

One series is one critical quantity, d_i > 0 meaning that the candidate was worse in pair i; steps 2 to 6 of
`release-gate.md` 2.6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trtgate.verdicts.stats import SD_FLOOR, TIMER_MS, FloatArray, bounds, level_per_look, student_t_quantile

Result = Literal["pass", "fail", "open"]
Standing = Literal["passed", "regression_proven", "regression_likely", "open"]


@dataclass(frozen=True, slots=True)
class Series:
    """Differences `d` (pairs,) and, after n pairs, the margin `deltas[n-1]` and floor of sd `floors[n-1]`."""

    name: str
    d: FloatArray
    deltas: FloatArray
    floors: FloatArray


@dataclass(frozen=True, slots=True)
class Estimate:
    """Where one series stands after n pairs; `likely` is the plain bound of step 5."""

    pairs: int
    mean: float
    sd: float
    upper: float
    lower: float
    likely: float
    delta: float
    passed: bool  # shown to be no worse than the margin; with a margin of nothing: no pair was worse at all

    @property
    def likely_worse(self) -> bool:
        """Worse than the margin as far as one can tell, and surely worse than the baseline."""
        return self.mean >= self.delta and self.likely > 0


@dataclass(frozen=True, slots=True)
class Walk:
    """The state after the last look that counts; `standings` and `estimates` by series name."""

    result: Result
    look: int
    pairs: int
    level: float
    final: bool
    standings: Mapping[str, Standing]
    estimates: Mapping[str, Estimate]


def metric_series(
    name: str, baseline: FloatArray, candidate: FloatArray, margin: tuple[float, float]
) -> Series:
    """Log ratios of quantiles (pairs,) in ms against a margin of (fraction, floor in ms), formula 2.4."""
    n = np.arange(1, len(baseline) + 1)
    geometric_mean = np.exp(np.cumsum(np.log(baseline)) / n)
    deltas = np.log1p(np.maximum(margin[0], margin[1] / geometric_mean))
    floors = np.maximum(SD_FLOOR, TIMER_MS / geometric_mean)
    return Series(name, np.log(candidate / baseline), deltas, floors)


def difference_series(name: str, d: FloatArray, limit: float) -> Series:
    """Plain differences (pairs,) against an absolute margin."""
    return Series(name, d, np.full(len(d), limit), np.full(len(d), SD_FLOOR))


def estimate(series: Series, n: int, level: float, m: int, overall: float) -> Estimate:
    """Mean and bounds of the first n >= 2 pairs; `m` critical metrics share the level of a FAIL."""
    delta = float(series.deltas[n - 1])
    found = bounds(series.d[:n], level, m, float(series.floors[n - 1]))
    likely = found.mean - student_t_quantile(1 - overall / m, n - 1) * found.se
    none_worse = delta == 0 and float(np.max(series.d[:n])) <= 0
    passed = found.upper < delta or none_worse
    return Estimate(n, found.mean, found.sd, found.upper, found.lower, likely, delta, passed)


def walk(
    series: Sequence[Series], looks: tuple[int, ...], pairs: int, overall: float, *, m: int, stop: bool
) -> Walk:
    """Go through the looks in order, as they were due, with `pairs` valid pairs and `m` critical metrics.

    `stop` says that no more will be measured: the last of the pairs is then the last look, planned or not,
    at the level of the full schedule. Marks stay; the first look that decides is the end.
    """
    level = level_per_look(looks, overall)
    due = [n for n in looks if n <= pairs]
    if stop and due and due[-1] < pairs <= looks[-1]:
        due.append(pairs)
    marks: dict[str, Estimate] = {}
    result: Result = "open"
    standings: dict[str, Standing] = {}
    estimates: dict[str, Estimate] = {}
    number = n = 0
    for number, n in enumerate(due, 1):
        current = {s.name: estimate(s, n, level, m, overall) for s in series}
        final = n == due[-1] and (stop or n == looks[-1])
        marks |= {name: e for name, e in current.items() if name not in marks and e.passed}
        standings = {name: _standing(e, marked=name in marks, final=final) for name, e in current.items()}
        estimates = {name: marks[name] if standings[name] == "passed" else e for name, e in current.items()}
        result = _result(standings)
        if result != "open":
            return Walk(result, number, n, level, True, standings, estimates)
    return Walk(result, number, n, level, bool(due) and due[-1] >= looks[-1], standings, estimates)


def _standing(current: Estimate, *, marked: bool, final: bool) -> Standing:
    if current.lower > current.delta:
        return "regression_proven"
    if marked:
        return "passed"
    return "regression_likely" if final and current.likely_worse else "open"


def _result(standings: Mapping[str, Standing]) -> Result:
    found = set(standings.values())
    if found & {"regression_proven", "regression_likely"}:
        return "fail"
    return "pass" if found == {"passed"} else "open"
