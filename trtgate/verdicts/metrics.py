"""Each latency quantile of a ledger: whether it can be gated, its series for the looks, what to say."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trtgate.evidence.ledger import Pair
from trtgate.profile import MetricLimit
from trtgate.record import Record
from trtgate.verdicts.looks import Estimate, Series, Standing, estimate, metric_series
from trtgate.verdicts.stats import FloatArray, samples_needed, sign_flip_p
from trtgate.verdicts.validity import probability, quantile_of, usable
from trtgate.verdicts.words import compared, counted

MAX_SIGN_FLIPS = 40  # pairs; there are 2^n sign patterns

MetricState = Literal["passed", "failed", "open", "advisory", "not gated"]


class MetricVerdict(Record):
    """One quantile: ratios are candidate over baseline (geometric means), limits and bounds ratios too.

    `level` is the one-sided level of the look; over all looks the bound holds at `confidence`.
    Where a regression is likely, `lower_ratio` is the plain bound that says so.
    """

    name: str
    state: MetricState
    reason: str = ""
    critical: bool = True
    ratio: float | None = None
    upper_ratio: float | None = None
    lower_ratio: float | None = None
    limit_ratio: float | None = None
    pairs: int = 0
    samples_min: int = 0
    baseline_ms: float | None = None
    candidate_ms: float | None = None
    level: float | None = None
    confidence: float = 0.95
    sd: float | None = None  # of the log ratios over pairs
    sign_flip_p: float | None = None  # cross-check: exact p-value of "at or above the limit"

    @property
    def text(self) -> str:
        """Ratio, bound, limit, n and state in one line."""
        if self.ratio is None:
            return f"{self.name}: {self.state}, {self.reason}"
        return f"{self.name} {self.ratio:.3f}x{self._bound}, {counted(self.pairs, 'pair')}: {self.state}"

    @property
    def _bound(self) -> str:
        if self.upper_ratio is None or self.lower_ratio is None or self.limit_ratio is None:
            return ""
        percent = f", {100 * self.confidence:.3g} %"
        if self.reason == "regression_likely":
            over = compared(self.ratio or 0.0, self.limit_ratio)
            return f" ({over}){percent} lower bound {compared(self.lower_ratio, 1.0)}"
        if self.state == "failed":
            return f"{percent} lower bound {compared(self.lower_ratio, self.limit_ratio)}"
        return f"{percent} bound {compared(self.upper_ratio, self.limit_ratio)}"

    @property
    def detail(self) -> str:
        """`text` with the values behind it, the samples and the reason."""
        reason = f"; {self.reason}" if self.reason and self.ratio is not None else ""
        if self.baseline_ms is None or self.candidate_ms is None:
            return self.text + reason
        values = f"{self.candidate_ms:.4g} ms against {self.baseline_ms:.4g} ms"
        return f"{self.text} ({values}, {self.samples_min} samples or more a run{reason})"


@dataclass(frozen=True, slots=True)
class MetricData:
    """The quantiles of one limit over valid pairs; `missing` is the first pair without a usable value."""

    limit: MetricLimit
    baseline: FloatArray  # (pairs,), ms
    candidate: FloatArray
    samples_min: int
    missing: int | None = None

    @property
    def needed(self) -> int:
        """Samples a run without which the quantile is reported and not gated."""
        return samples_needed(probability(self.limit))

    @property
    def gateable(self) -> bool:
        """Whether there are values in every pair, and enough samples behind each."""
        return self.missing is None and len(self.baseline) > 0 and self.samples_min >= self.needed

    @property
    def series(self) -> Series:
        """For the looks."""
        margin = (self.limit.margin, self.limit.floor)
        return metric_series(self.limit.name, self.baseline, self.candidate, margin)


def read_metric(limit: MetricLimit, pairs: Sequence[Pair]) -> MetricData:
    """Collect one limit's quantiles from both arms of the pairs, up to the first pair that lacks one."""
    values: list[tuple[float, float]] = []
    samples: list[int] = []
    for pair in pairs:
        runs = (pair.baseline, pair.candidate)
        found = [run.quantiles.get(limit.metric) if run is not None else None for run in runs]
        both = [quantile_of(q, limit) for q in found if q is not None and usable(quantile_of(q, limit))]
        if len(both) < 2:
            return MetricData(limit, *_columns(values), min(samples, default=0), pair.index)
        values.append((both[0], both[1]))
        samples += [q.samples for q in found if q is not None]
    return MetricData(limit, *_columns(values), min(samples, default=0))


def _columns(values: list[tuple[float, float]]) -> tuple[FloatArray, FloatArray]:
    table = np.array(values, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def describe(
    data: MetricData, found: Estimate | None, standing: Standing, level: float, overall: float
) -> MetricVerdict:
    """The verdict on a gated metric from its estimate at the look that decided; None: under two pairs."""
    state: MetricState = "failed" if standing.startswith("regression") else "open"
    state = "passed" if standing == "passed" else state
    reason = standing if state == "failed" else ""
    if found is None:
        n = min(len(data.baseline), 1)
        return _fill(data, n, state, reason or "too few pairs", overall)
    base = _fill(data, found.pairs, state, reason, overall)
    ratios = _ratios(data, found) | {"level": level}
    if standing == "regression_likely":
        ratios["lower_ratio"] = _exp(found.likely)
    return base.model_copy(update=ratios)


def report(data: MetricData, n: int, level: float, overall: float) -> MetricVerdict:
    """What is said of a metric that decides nothing: advisory, or critical without enough samples."""
    state: MetricState = "not gated" if data.limit.critical or data.missing is not None else "advisory"
    reason = ""
    if data.missing is not None:
        reason = f"missing in pair {data.missing}"
    elif not len(data.baseline):
        state, reason = "not gated", "no valid pair"
    elif data.samples_min < data.needed:
        state, reason = "not gated", f"{data.samples_min} samples in the smallest run of {data.needed} needed"
    n = min(n, len(data.baseline))
    base = _fill(data, n, state, reason, overall)
    if n < 2:
        return base
    found = estimate(data.series, n, level, 1, overall)
    if state == "advisory":
        reason = (
            "within its limit" if found.passed else "over its limit" if found.lower > found.delta else "open"
        )
    return base.model_copy(update=_ratios(data, found) | {"level": level, "reason": reason})


def _ratios(data: MetricData, found: Estimate) -> dict[str, float | None]:
    d = data.series.d[: found.pairs]
    p = sign_flip_p(d, found.delta) if found.pairs <= MAX_SIGN_FLIPS else None
    return {
        "upper_ratio": _exp(found.upper),
        "lower_ratio": _exp(found.lower),
        "limit_ratio": _exp(found.delta),
        "sd": found.sd,
        "sign_flip_p": p,
    }


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))  # two wild pairs have bounds beyond any number


def _fill(data: MetricData, n: int, state: MetricState, reason: str, overall: float) -> MetricVerdict:
    limit = data.limit
    empty = MetricVerdict(
        name=limit.name,
        state=state,
        reason=reason,
        critical=limit.critical,
        pairs=n,
        samples_min=data.samples_min,
        confidence=1 - overall,
    )
    if n == 0:
        return empty
    baseline, candidate = (float(np.exp(np.mean(np.log(x[:n])))) for x in (data.baseline, data.candidate))
    return empty.model_copy(
        update={
            "ratio": candidate / baseline,
            "baseline_ms": baseline,
            "candidate_ms": candidate,
            "limit_ratio": math.exp(float(data.series.deltas[n - 1])),
        }
    )
