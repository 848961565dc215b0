"""Histograms of Prometheus, from a saved exposition or the JSON of a query: buckets, never made-up values."""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from trtgate.errors import TraceError
from trtgate.traces.base import Ranges, ReadOptions, TraceSource
from trtgate.traces.files import hashing, read_whole
from trtgate.traces.rows import counted

TOKENS_OF_A_STEP = "vllm:iteration_tokens_total"
PREFIXES = ("", "vllm:", "trtllm_")
NOT_A_NUMBER = "sample is not a number"
BAD_SAMPLE = "sample not readable"
_SAMPLE_LINE = re.compile(
    rb"^[A-Za-z_:][\w:]*(\{.*\})? +([-+]?[\d.][\d.eE+-]*|[-+]?Inf|NaN)( \d+)?\r?$", re.MULTILINE
)
_SUM = "sum"
_LARGEST = 1e15  # larger counts are damage, and would leave the integers
OTHER_METRIC = "sample of another metric"
Edges = tuple[float, float]
Labels = frozenset[tuple[str, str]]
Point = tuple[float, float]  # time in seconds (0 in an exposition) and value
Sample = tuple[str, Labels, Point]


@dataclass(frozen=True, slots=True)
class PrometheusReader:
    """One histogram, chosen by `metric`; without a choice, the tokens of vLLM's iterations."""

    name: str = "prometheus"

    def sniff(self, head: bytes, filename: str) -> bool:  # noqa: ARG002 - the text says enough
        """Whether the text is an exposition or the answer to a query."""
        if head.lstrip().startswith(b"{"):
            return b'"resultType"' in head
        return b"# TYPE " in head or bool(_SAMPLE_LINE.match(head))

    def read(self, path: Path, options: ReadOptions) -> Ranges:
        """Read the histogram; `TraceError` where it is not there names those that are."""
        left_out: Counter[str] = Counter()
        with hashing(path) as digest:
            text = read_whole(path)
            found = (
                _query(path, text, left_out) if text.lstrip().startswith("{") else _exposition(text, left_out)
            )
            samples = list(found)
            metric = _choose(path, {name for name, _, _ in samples}, options.metric)
            return _ranges(path, metric, samples, left_out, digest.result())


def resets_of(points: Iterable[Point]) -> set[float]:
    """Return the times at which a counter is lower than before: its server began anew."""
    return {time_s for (_, before), (time_s, now) in pairwise(sorted(points)) if now < before}


def increase(points: Iterable[Point], resets: set[float]) -> float:
    """Return how much a counter grew, from 0 at each reset; a single point counts from 0 as well."""
    ordered = sorted(points)
    if len(ordered) == 1:
        return ordered[0][1]
    return sum(
        now - (0.0 if time_s in resets else before) for (_, before), (time_s, now) in pairwise(ordered)
    )


def _exposition(text: str, left_out: Counter[str]) -> Iterator[Sample]:
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            samples = [sample for family in text_string_to_metric_families(line) for sample in family.samples]
        except (ValueError, IndexError, KeyError):
            left_out[BAD_SAMPLE] += 1
            continue
        for sample in samples:
            yield sample.name, frozenset(sample.labels.items()), (0.0, float(sample.value))


def _query(path: Path, text: str, left_out: Counter[str]) -> Iterator[Sample]:
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"`{path}` is not valid JSON", "save the whole answer of the query") from error
    if not isinstance(answer, dict):
        raise TraceError(f"`{path}` is not the answer of a query", "save the whole answer of the query")
    if answer.get("status") == "error":
        raise TraceError(
            f"the query in `{path}` failed: {answer.get('error', 'no reason given')}", "ask again"
        )
    data = answer.get("data")
    results = data.get("result") if isinstance(data, dict) else None
    for result in results if isinstance(results, list) else ():
        if not isinstance(result, dict) or not isinstance(result.get("metric"), dict):
            left_out[BAD_SAMPLE] += 1
            continue
        labels = dict(result["metric"])
        # an expression such as `sum by (le) (increase(...))` loses the name
        name = str(labels.pop("__name__", "query_bucket"))
        points = result.get("values")
        for point in points if isinstance(points, list) else [result.get("value")]:
            read = _point(point)
            if read is None:
                left_out[BAD_SAMPLE] += 1
            else:
                yield name, frozenset((str(key), str(value)) for key, value in labels.items()), read


def _point(point: Any) -> Point | None:  # noqa: ANN401 - any JSON value
    try:
        time_s, value = (float(part) for part in point)
    except (TypeError, ValueError, OverflowError):
        return None
    return (time_s, value) if math.isfinite(time_s) else None


def _choose(path: Path, names: set[str], metric: str | None) -> str:
    """Return the full name of the histogram that is asked for."""
    known = sorted(name.removesuffix("_bucket") for name in names if name.endswith("_bucket"))
    wanted = (metric or TOKENS_OF_A_STEP).removesuffix("_bucket")
    for prefix in PREFIXES:
        if prefix + wanted in known:
            return prefix + wanted
    if metric is None and known == ["query"]:
        return "query"
    raise TraceError(
        f"`{path}` has no histogram `{wanted}`",
        f"choose one with `--metric`: {', '.join(known[:12])}" if known else "there is no histogram in it",
    )


def _ranges(path: Path, metric: str, samples: list[Sample], left_out: Counter[str], sha256: str) -> Ranges:
    """Take the differences of the cumulative buckets, series by series, and add up equal ranges."""
    series: dict[Labels, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    kept = 0
    for name, labels, point in samples:
        if not abs(point[1]) <= _LARGEST:  # nan is not, either
            left_out[NOT_A_NUMBER] += 1
        elif name in (f"{metric}_bucket", f"{metric}_sum"):
            edge = dict(labels).get("le", _SUM)
            series[labels - {("le", edge)}][edge].append(point)
            kept += 1
        else:
            left_out[OTHER_METRIC] += 1
    counts: Counter[Edges] = Counter()
    total, resets = 0.0, 0
    for by_edge in series.values():
        anew = set().union(*(resets_of(points) for points in by_edge.values()))
        resets += len(anew)
        grown = {edge: increase(points, anew) for edge, points in by_edge.items()}
        total += grown.pop(_SUM, math.nan)
        counts.update(_differences({_edge(path, edge): value for edge, value in grown.items()}))
    if not counts.total():
        raise TraceError(f"the histogram `{metric}` in `{path}` is empty", "record it under load")
    times_s = [time_s for by_edge in series.values() for points in by_edge.values() for time_s, _ in points]
    source = TraceSource(
        name=path.name,
        sha256=sha256,
        format="prometheus",
        read=kept + left_out.total(),
        kept=kept,
        dropped=dict(sorted(left_out.items())),
        span_s=max(times_s) - min(times_s),
        time_unit="s" if any(times_s) else "none",
        notes=(counted(resets, "restart", "restarts") + " of the counters",) if resets else (),
    )
    ordered = sorted(counts)
    return Ranges(
        metric,
        np.array([low for low, _ in ordered]),
        np.array([high for _, high in ordered]),
        np.array([counts[edges] for edges in ordered], np.int64),
        total,
        (source,),
    )


def _differences(cumulative: dict[float, float]) -> dict[Edges, int]:
    """Turn counts up to each edge into counts between edges; a scrape can see buckets move, hence the floor."""
    found, low, below = {}, 0.0, 0.0
    for high in sorted(cumulative):
        found[low, high] = max(round(cumulative[high] - below), 0)
        low, below = high, cumulative[high]
    return found


def _edge(path: Path, text: str) -> float:
    try:
        edge = float(text)
    except ValueError:
        edge = math.nan
    if math.isnan(edge):
        raise TraceError(f'`{path}` has a bucket with `le="{text}"`', "save it again")
    return edge


PROMETHEUS = PrometheusReader()
