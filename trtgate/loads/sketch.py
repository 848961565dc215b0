"""A histogram of growing buckets: quantiles of any number of samples, in little memory, merged by addition."""

import math
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from trtgate.errors import InvalidMeasurementError
from trtgate.record import Record

ERROR = 0.005
_LOG_GROWTH = math.log((1 + ERROR) / (1 - ERROR))
_LEAST = 1e-6


class Sketch(Record):
    """Counts by bucket i of ]g^(i-1), g^i], g = (1 + e) / (1 - e): every quantile within a part `ERROR` of exact.

    The scheme is DDSketch's (Masson, Rim, Lee 2019), without a limit on buckets; below 1e-6 samples count as 0.
    """

    counts: dict[int, int]
    zeros: int
    total: float
    max: float

    @classmethod
    def of(cls, values: ArrayLike) -> Self:
        """The sketch of samples, all finite and not negative."""
        data = np.asarray(values, dtype=np.float64)
        if data.size and not (np.isfinite(data).all() and data.min() >= 0):
            raise InvalidMeasurementError("a sample is negative or not finite", "the measurement is at fault")
        large = data[data > _LEAST]
        places, counts = np.unique(np.ceil(np.log(large) / _LOG_GROWTH).astype(np.int64), return_counts=True)
        return cls(
            counts=dict(zip(places.tolist(), counts.tolist(), strict=True)),
            zeros=int(data.size - large.size),
            total=float(data.sum()),
            max=float(data.max()) if data.size else 0.0,
        )

    @property
    def n(self) -> int:
        """How many samples went in."""
        return self.zeros + sum(self.counts.values())

    def merge(self, other: Self) -> Self:
        """The sketch of both sets of samples; exact, in any order."""
        keys = self.counts.keys() | other.counts.keys()
        return type(self)(
            counts={key: self.counts.get(key, 0) + other.counts.get(key, 0) for key in keys},
            zeros=self.zeros + other.zeros,
            total=self.total + other.total,
            max=max(self.max, other.max),
        )

    def quantile(self, p: float) -> float:
        """Order statistic ceil(p*n), within a part `ERROR`; `InvalidMeasurementError` of no samples."""
        if not self.n:
            raise InvalidMeasurementError(
                "a quantile of no samples was asked for", "no request was completed"
            )
        place = max(math.ceil(round(p * self.n, 9)), 1) - self.zeros
        if place <= 0:
            return 0.0
        for bucket in sorted(self.counts):
            place -= self.counts[bucket]
            if place <= 0:
                break
        return min(math.exp(bucket * _LOG_GROWTH) * (1 - ERROR), self.max)
