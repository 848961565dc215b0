"""Creep over many releases: each within its margin, together beyond it (five times +5 % are +28 %)."""

import math
from collections.abc import Sequence
from typing import Literal

from trtgate.record import Record
from trtgate.verdicts.judge import Verdict


class Drift(Record):
    """The estimates of all releases since the anchor, multiplied, against a margin of their own."""

    name: str
    state: Literal["passed", "failed", "open"]
    releases: int
    ratio: float | None
    limit_ratio: float
    message: str


def drift(estimates: Sequence[float | None], margin: float, name: str = "") -> Drift:
    """Multiply the ratios (candidate over its baseline, oldest first) since a pinned anchor.

    `margin` is a fraction. A release without an estimate leaves the drift open: it may hide any step.
    """
    limit = 1 + margin
    known = [x for x in estimates if x is not None and math.isfinite(x) and x > 0]
    n, missing = len(estimates), len(estimates) - len(known)
    if missing:
        message = f"{missing} of {n} releases have no estimate"
        return Drift(name=name, state="open", releases=n, ratio=None, limit_ratio=limit, message=message)
    ratio = math.exp(math.fsum(math.log(x) for x in known))
    failed = ratio > limit
    message = f"{ratio:.3f}x over {n} release{'s' if n != 1 else ''} {'>' if failed else '<='} {limit:.3f}"
    state: Literal["passed", "failed"] = "failed" if failed else "passed"
    return Drift(name=name, state=state, releases=n, ratio=ratio, limit_ratio=limit, message=message)


def drift_of(verdicts: Sequence[Verdict], margin: float) -> tuple[Drift, ...]:
    """The drift of every metric of the newest verdict; `verdicts` since the anchor, oldest first."""
    if not verdicts:
        return ()
    history = [{m.name: m.ratio for m in verdict.metrics} for verdict in verdicts]
    return tuple(
        drift([entry.get(m.name) for entry in history], margin, m.name) for m in verdicts[-1].metrics
    )
