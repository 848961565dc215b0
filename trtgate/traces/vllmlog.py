"""The iteration lines of vLLM (`--enable-logging-iteration-details`)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trtgate.traces.base import ReadOptions, Steps
from trtgate.traces.iterlog import Log


def _scan_vllm(text: NDArray[np.uint8], rows: NDArray[np.float64]) -> tuple[int, int]:
    from trtgate.traces.scan import scan_vllm

    return scan_vllm(text, rows)


_VLLM = Log(
    "vllm-log",
    _scan_vllm,
    re.compile(rb" [A-Z]+ (\d\d-\d\d \d\d:\d\d:\d\d) \["),
    "%m-%d %H:%M:%S",  # the year is not written: a span over New Year is lost
    padded=False,
    hint="start the runtime with `--enable-logging-iteration-details`",
)


@dataclass(frozen=True, slots=True)
class VllmLogReader:
    """Lines with `Iteration(N): ...`; each engine of a data-parallel group counts on its own."""

    name: str = "vllm-log"

    def sniff(self, head: bytes, filename: str) -> bool:  # noqa: ARG002 - the lines say enough
        """Whether an iteration line, or a process of vLLM, is among the first lines."""
        lines_of_it = b"Iteration(" in head and b" context requests, " in head
        return lines_of_it or b"(EngineCore" in head or b"(APIServer pid=" in head

    def read(self, path: Path, options: ReadOptions) -> Steps:
        """Read every iteration that had work; sizes have no padding in them, and none is known."""
        return _VLLM.read(path, options)

    def stream(self, path: Path, options: ReadOptions) -> Iterator[Steps]:
        """Read in parts, so that memory stays flat."""
        return _VLLM.stream(path, options)


VLLM_LOG = VllmLogReader()
