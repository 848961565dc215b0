"""The Mooncake traces: milliseconds, prefix blocks of 512 tokens, arrivals recorded in bins of 3 seconds."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trtgate.traces.base import ColumnNames, ReadOptions, Trace
from trtgate.traces.files import read_head
from trtgate.traces.jsonlines import JsonLinesReader, head_objects

KEYS = ColumnNames("timestamp", "input_length", "output_length")
_LINES = JsonLinesReader(
    "mooncake", KEYS, "ms", 512, marks=frozenset({"hash_ids"}), absent=frozenset({"chat_id"})
)


@dataclass(frozen=True, slots=True)
class MooncakeReader:
    """One request a line; where most arrivals share their time with others, they are spread in the bin."""

    name: str = "mooncake"

    def sniff(self, head: bytes, filename: str) -> bool:
        """Whether the first line has a time, lengths and blocks, and no chat."""
        return _LINES.sniff(head, filename)

    def read(self, path: Path, options: ReadOptions) -> Trace:
        """Read the lines; times with fractions are taken for seconds, which is noted."""
        notes: tuple[str, ...] = ()
        if options.time_unit is None and _has_fractions(read_head(path)):
            options = replace(options, time_unit="s")
            notes = ("times have fractions, so they were read as seconds",)
        trace = spread(_LINES.read(path, options))
        source = trace.sources[0]
        return replace(trace, sources=(source.model_copy(update={"notes": (*notes, *source.notes)}),))


def spread(trace: Trace) -> Trace:
    """Spread arrivals evenly inside their bins where at least half of all gaps are 0; else change nothing.

    A bin reaches to the next time on record, but is never wider than the median bin.
    """
    times, sizes = np.unique(trace.arrival_s, return_counts=True)
    if len(trace) < 2 * len(times) or len(times) < 2:
        return trace
    gaps = np.diff(times)
    width_s = float(np.median(gaps))
    room_s = np.minimum(np.append(gaps, width_s), width_s)
    arrival_s = np.repeat(times, sizes) + _places(sizes) * np.repeat(room_s / sizes, sizes)
    note = f"arrivals were in {width_s:g} s bins; spread evenly inside each"
    source = trace.sources[0]
    source = source.model_copy(update={"span_s": float(arrival_s[-1]), "notes": (*source.notes, note)})
    return replace(trace, arrival_s=arrival_s, sources=(source,))


def _places(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count each bin's members from 0."""
    starts = np.cumsum(sizes) - sizes
    places: NDArray[np.int64] = np.arange(int(sizes.sum())) - np.repeat(starts, sizes)
    return places


def _has_fractions(head: bytes) -> bool:
    times = (row.get(KEYS.time or "") for row in head_objects(head))
    return any(isinstance(time, float) and time % 1 != 0 for time in times)


MOONCAKE = MooncakeReader()
