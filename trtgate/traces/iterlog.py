"""The iteration log of TensorRT-LLM (`print_iter_log`) in all its layouts: keys in any order, `:` or `=`."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trtgate.traces.base import ReadOptions, Steps
from trtgate.traces.files import Piece, bytes_of, hashing, lines
from trtgate.traces.rows import Origin
from trtgate.traces.steps import WIDTH, StepRows, step_rows
from trtgate.traces.stepstream import join_steps, stream_steps
from trtgate.traces.tables import in_parallel

Scan = Callable[[NDArray[np.uint8], NDArray[np.float64]], tuple[int, int]]


_TAIL_BYTES = 1 << 16
_SHORTEST_LINE = 10  # bytes: an iteration line cannot be shorter than what it is known by


@dataclass(frozen=True, slots=True)
class IterationLogReader:
    """Lines with `iter = N, global_rank = R`, whatever stands before them; other lines are passed over."""

    name: str = "trtllm-log"

    def sniff(self, head: bytes, filename: str) -> bool:  # noqa: ARG002 - the lines say enough
        """Whether an iteration line, or the logger of TensorRT-LLM, is among the first lines."""
        return (
            (b"iter = " in head and b"global_rank" in head)
            or b"[TRT-LLM] [" in head
            or b"[TensorRT-LLM][" in head
        )

    def read(self, path: Path, options: ReadOptions) -> Steps:
        """Read every iteration that had work; of several ranks, the largest size of each iteration."""
        return TRTLLM.read(path, options)

    def stream(self, path: Path, options: ReadOptions) -> Iterator[Steps]:
        """Read in parts, so that memory stays flat."""
        return TRTLLM.stream(path, options)


@dataclass(frozen=True, slots=True)
class Log:
    """How the log of a runtime is read: by a compiled scan, and its times by a pattern and its spelling.

    `padded` where the tokens of a line include padding, and the ranks of a group run the same iterations.
    """

    name: str
    scan: Scan
    time: re.Pattern[bytes]
    spelling: str
    padded: bool
    hint: str

    def read(self, path: Path, options: ReadOptions) -> Steps:
        """Read the whole log."""
        with hashing(path) as digest:
            origin = Origin(path, self.name, "none", digest)
            return join_steps(self._rows(path, options), origin, merge_ranks=self.padded, hint=self.hint)

    def stream(self, path: Path, options: ReadOptions) -> Iterator[Steps]:
        """Read the log in parts, of which the last bears the source."""
        with hashing(path) as digest:
            origin = Origin(path, self.name, "none", digest)
            yield from stream_steps(
                self._rows(path, options), origin, merge_ranks=self.padded, hint=self.hint
            )

    def _rows(self, path: Path, options: ReadOptions) -> Iterator[StepRows]:
        return in_parallel(lambda piece: self._parse(piece, options.draft_len), lines(path))

    def _parse(self, piece: Piece, draft_len: int) -> StepRows:
        text = bytes_of(piece)
        rows = np.empty((len(text) // _SHORTEST_LINE + 1, WIDTH))
        count, total = self.scan(text, rows)
        found = step_rows(rows[:count], draft_len=draft_len, padding_known=self.padded)
        return replace(found, unmatched=total - count, times_s=self._times_s(piece))

    def _times_s(self, piece: Piece) -> tuple[float, float]:
        """Return the first and the last time in a piece, in seconds; nan where none can be read."""
        first = self.time.search(piece)
        last = next(reversed(self.time.findall(piece[-_TAIL_BYTES:])), None)
        return _time_s(first and first[1], self.spelling), _time_s(last, self.spelling)


def _time_s(text: bytes | None, spelling: str) -> float:
    try:
        moment = datetime.strptime((text or b"").decode(), spelling)
    except ValueError:
        return float("nan")
    return moment.replace(tzinfo=UTC).timestamp()


def _scan_trtllm(text: NDArray[np.uint8], rows: NDArray[np.float64]) -> tuple[int, int]:
    from trtgate.traces.scan import scan_trtllm

    return scan_trtllm(text, rows)


TRTLLM = Log(
    "trtllm-log",
    _scan_trtllm,
    re.compile(rb"timestamp = (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"),
    "%Y-%m-%d %H:%M:%S",
    padded=True,
    hint="start the runtime with `print_iter_log: true`",
)
TRTLLM_LOG = IterationLogReader()
