"""The AIBrix workloads: one instant a line (milliseconds), with the list of the requests that arrive then."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtgate.traces.base import ReadOptions, Trace
from trtgate.traces.files import Piece, hashing, lines
from trtgate.traces.jsonlines import block_of, head_keys, objects
from trtgate.traces.rows import OTHER_SHAPE, Kept, Origin, assemble, select
from trtgate.traces.tables import in_parallel

_PROMPT = ("Prompt Length", "prompt_length")
_OUTPUT = ("Output Length", "output_length")


@dataclass(frozen=True, slots=True)
class AibrixReader:
    """A time and a list of requests a line; each request is a row."""

    name: str = "aibrix"

    def sniff(self, head: bytes, filename: str) -> bool:  # noqa: ARG002 - the keys say enough
        """Whether the first line has a time and a list of requests."""
        first = head_keys(head)
        return "timestamp" in first and isinstance(first.get("requests"), list)

    def read(self, path: Path, options: ReadOptions) -> Trace:
        """Read every request of every line; `TraceError` where none can be used."""
        unit = options.time_unit or "ms"

        def parse(piece: Piece) -> Kept:
            left_out: Counter[str] = Counter()
            rows = [row for line in objects(piece, left_out) for row in _requests(line, left_out)]
            return select(block_of(rows, unit, left_out), options)

        with hashing(path) as digest:
            return assemble(in_parallel(parse, lines(path)), Origin(path, self.name, unit, digest))


def _requests(line: dict[str, Any], left_out: Counter[str]) -> list[tuple[Any, Any, Any]]:
    found = line.get("requests")
    if not isinstance(found, list):
        left_out[OTHER_SHAPE] += 1
        return []
    good = [request for request in found if isinstance(request, dict)]
    left_out[OTHER_SHAPE] += len(found) - len(good)
    return [(line.get("timestamp"), _first(request, _PROMPT), _first(request, _OUTPUT)) for request in good]


def _first(request: dict[str, Any], names: tuple[str, ...]) -> object:
    return next((request[name] for name in names if name in request), None)


AIBRIX = AibrixReader()
