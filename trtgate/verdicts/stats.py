"""The statistics of the judge: pure functions of arrays, without files, clocks or random numbers.

Formulas and check values: `release-gate.md` 2.2 to 2.5; Pocock 1977 for constant levels over several looks.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trtgate.errors import InvalidMeasurementError

FloatArray = NDArray[np.float64]

TAIL_SAMPLES = 20  # samples beyond a quantile below which it is no evidence
SD_FLOOR = 0.001  # a deterministic system must not get infinite confidence
TIMER_MS = 0.001

# Looks -> level of each look for an overall level of 5 % and 2.5 % (Monte Carlo, 10^6 replicates).
LEVELS: dict[tuple[int, ...], tuple[float, float]] = {
    (6, 8): (0.0337, 0.0162),
    (6, 8, 10): (0.0263, 0.0123),
    (6, 8, 10, 12): (0.0218, 0.0102),
    (8, 12, 16): (0.0245, 0.0115),
    (8, 12, 16, 20): (0.0206, 0.0095),
    (10, 14, 18, 22): (0.0217, 0.0100),
}


class Bounds(NamedTuple):
    """Mean, standard deviation and standard error of differences, and one-sided bounds of their mean."""

    mean: float
    sd: float
    se: float
    upper: float
    lower: float


def quantile(values: FloatArray, p: float) -> float:
    """Order statistic number ceil(p*N) of `values` (N,), 0 < p <= 1; refuses no values and NaN."""
    if not len(values) or not np.all(np.isfinite(values)):
        raise InvalidMeasurementError("a quantile needs finite samples", "see the errors of the run")
    rank = max(math.ceil(p * len(values) - 1e-9), 1)
    return float(np.partition(values, rank - 1)[rank - 1])


def samples_needed(p: float) -> int:
    """The smallest N with N * (1-p) >= 20: 40 for p50, 400 for p95, 2000 for p99."""
    return math.ceil(TAIL_SAMPLES / (1 - p) - 1e-6)


def level_per_look(looks: tuple[int, ...], overall: float) -> float:
    """The one-sided level of each look that keeps `overall` over all of them; `overall / K` always does."""
    if looks in LEVELS:
        at_5, at_2_5 = LEVELS[looks]
        if math.isclose(overall, 0.05):
            return at_5
        if math.isclose(overall, 0.025):
            return at_2_5
    return overall / len(looks)


def bounds(d: FloatArray, level: float, m: int, floor: float = SD_FLOOR) -> Bounds:
    """Bounds of the mean of `d` (n >= 2 pairs): upper at `level`, lower at `level / m` of m metrics."""
    n = len(d)
    mean, sd = float(np.mean(d)), float(np.std(d, ddof=1))
    se = max(sd, floor) / math.sqrt(n)
    upper = mean + student_t_quantile(1 - level, n - 1) * se
    return Bounds(mean, sd, se, upper, mean - student_t_quantile(1 - level / m, n - 1) * se)


def sign_flip_p(d: FloatArray, delta: float) -> float:
    """Exact one-sided p-value that the mean of `d` (n <= 40) is at or above `delta`, by flipping signs.

    The 2^n sums are counted as pairs of 2^(n/2) half sums; with 6 pairs the smallest value is 1/64.
    """
    x = np.abs(d - delta)
    observed = float(np.sum(d - delta)) + 1e-9 * float(np.sum(x)) + 1e-15
    left, right = _signed_sums(x[: len(x) // 2]), np.sort(_signed_sums(x[len(x) // 2 :]))
    at_most = np.searchsorted(right, observed - left, side="right")
    return float(np.sum(at_most) / (len(left) * len(right)))


def _signed_sums(x: FloatArray) -> FloatArray:
    sums = np.zeros(1)
    for value in x:
        sums = np.concatenate([sums - value, sums + value])
    return sums


def zero_event_bound(n: int) -> float:
    """The rate per run that no event in `n` runs excludes at 95 %: 22 % for 12 runs, everything for none."""
    return 1 - 0.05 ** (1 / n) if n else 1.0


@lru_cache(maxsize=4096)
def student_t_quantile(p: float, df: int) -> float:
    """The Student-t quantile for 0 < p < 1 and df >= 1 degrees of freedom, to 1e-13 (relative above 1)."""
    if p == 0.5:
        return 0.0
    if p < 0.5:
        return -student_t_quantile(1 - p, df)
    tail = 1 - p
    high = 1.0
    while _upper_tail(high, df) > tail:
        high *= 2
    low = 0.0
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return middle
        if _upper_tail(middle, df) > tail:
            low = middle
        else:
            high = middle


def _upper_tail(t: float, df: int) -> float:
    return 0.5 * incomplete_beta(df / (df + t * t), df / 2, 0.5)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by the continued fraction of Lentz."""
    if x <= 0 or x >= 1:
        return float(x > 0)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x > (a + 1) / (a + b + 2):
        return 1 - front * _continued_fraction(1 - x, b, a) / b
    return front * _continued_fraction(x, a, b) / a


def _continued_fraction(x: float, a: float, b: float) -> float:
    d = 1 / (1 - (a + b) * x / (a + 1))
    c, value = 1.0, d
    for m in range(1, 1000):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + factor * d)
            c = 1 + factor / c
            value *= d * c
        if abs(d * c - 1) < 1e-16:
            break
    return value
