"""Records how a histogram on a live page of Prometheus grows, so that sizes stay known as ranges only."""

import hashlib
import math
from collections import Counter

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from trtgate.errors import TraceError, UsageError
from trtgate.evidence.recording import Log, Wanted, finished
from trtgate.plans.histogram import Histogram, from_ranges
from trtgate.traces.base import Ranges, TraceSource
from trtgate.traces.prometheus import PREFIXES, TOKENS_OF_A_STEP

LARGEST = 2**53  # above it, numbers of an exposition no longer count by one
EMPTY = "step without a token"
OPEN_END = "step in the last bucket, which has no upper end"
Series = dict[frozenset[tuple[str, str]], dict[float, float]]


def record_buckets(log: Log) -> Histogram:
    """The histogram of a Prometheus histogram's growth; sizes stay known as ranges only."""
    metric = find_metric(log.first, log.wanted)
    growth = Growth(metric)
    growth.see(log.first)
    log.keep(growth.lines(log.first, 0.0))
    whole = hashlib.sha256()
    for answer in log.answers():
        growth.see(answer)
        lines = growth.lines(answer, log.elapsed_s)
        whole.update("".join(f"{line}\n" for line in lines).encode())
        log.keep(lines)
        log.show(growth.steps)
    if growth.resets:
        log.losses["restart(s) of the server; steps between a restart and the reading before are lost"] = (
            growth.resets
        )
    ranges = growth.ranges(log.wanted, whole.hexdigest())
    return finished(from_ranges(ranges, "tokens", log.wanted.ceiling or 1), log)


class Growth:
    """How much each bucket of a histogram grew since the first page, over all series, through restarts."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._before: Series = {}
        self._grown: Counter[float] = Counter()
        self._begun = False
        self.resets = 0

    @property
    def steps(self) -> int:
        """Steps so far."""
        return round(max(self._grown.values(), default=0.0))

    def lines(self, page: str, at_s: float) -> list[str]:
        """The lines of this histogram, with the second of the recording in milliseconds behind them."""
        return [
            f"{line} {at_s * 1000:.0f}" for line in page.splitlines() if line.startswith(f"{self._metric}_")
        ]

    def see(self, page: str) -> None:
        """Add what a page has more than the page before; a series that is new or fell counts from nought."""
        for labels, now in _series(page, self._metric).items():
            before = self._before.get(labels, {})
            if any(value < before.get(edge, 0.0) for edge, value in now.items()):
                self.resets += 1
                before = {}
            if self._begun:
                self._grown.update({edge: value - before.get(edge, 0.0) for edge, value in now.items()})
            self._before[labels] = now
        self._begun = True

    def ranges(self, wanted: Wanted, sha256: str) -> Ranges:
        """Counts between edges; what lies below one token, or above all edges without a ceiling, is left out."""
        kept: dict[tuple[float, float], int] = {}
        dropped: Counter[str] = Counter()
        low, below = 0.0, 0.0
        for high in sorted(self._grown):
            count = max(round(self._grown[high] - below), 0)
            if math.isinf(high) and wanted.ceiling is None:
                dropped[OPEN_END] += count
            elif high < 1:
                dropped[EMPTY] += count
            else:
                kept[low, high] = count
            low, below = high, self._grown[high]
        self._require_some(kept, +dropped, wanted)
        lows, highs = (np.array([edges[side] for edges in kept], np.float64) for side in (0, 1))
        source = _source(sum(kept.values()), +dropped, wanted.name, sha256, self._metric)
        return Ranges(self._metric, lows, highs, np.array(list(kept.values()), np.int64), math.nan, (source,))

    def _require_some(
        self, kept: dict[tuple[float, float], int], dropped: Counter[str], wanted: Wanted
    ) -> None:
        if any(kept.values()):
            return
        what = f"`{self._metric}` of `{wanted.page}`"
        if dropped[OPEN_END]:
            message = (
                f"all {dropped[OPEN_END]} steps of {what} are in its last bucket, which has no upper end"
            )
            raise TraceError(message, "say where it ends with `--max-num-tokens`")
        raise TraceError(f"{what} did not grow", "record it under load")


def _source(kept: int, dropped: Counter[str], name: str, sha256: str, metric: str) -> TraceSource:
    return TraceSource(
        name=name,
        sha256=sha256,
        format="prometheus",
        read=kept + dropped.total(),
        kept=kept,
        dropped=dict(sorted(dropped.items())),
        span_s=0.0,
        time_unit="none",
        notes=(f"`{metric}` counts all steps, those of decode too: sizes are known as ranges",),
    )


def find_metric(page: str, wanted: Wanted) -> str:
    """The full name of the histogram that is asked for; `UsageError` names those that are there."""
    names = {line.split("{")[0].split(" ")[0] for line in page.splitlines() if not line.startswith("#")}
    known = sorted(name.removesuffix("_bucket") for name in names if name.endswith("_bucket"))
    asked = (wanted.metric or TOKENS_OF_A_STEP).removesuffix("_bucket")
    for prefix in PREFIXES:
        if prefix + asked in known:
            return prefix + asked
    raise UsageError(
        f"`{wanted.page}` has no histogram `{asked}`",
        f"choose one with `--metric`: {', '.join(known[:12])}" if known else "see that statistics are on",
    )


def _series(page: str, metric: str) -> Series:
    """The cumulative buckets of each series that can be counts."""
    found: Series = {}
    for line in page.splitlines():
        if not line.startswith(f"{metric}_bucket"):
            continue
        try:
            (sample,) = (one for family in text_string_to_metric_families(line) for one in family.samples)
            labels = dict(sample.labels)
            edge, value = float(labels.pop("le")), float(sample.value)
        except (ValueError, KeyError, IndexError):
            continue
        if 0 <= value <= LARGEST and edge >= 0:  # also leaves out what is no number
            found.setdefault(frozenset(labels.items()), {})[edge] = value
    return found
