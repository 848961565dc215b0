"""Rows of TensorRT-LLM's `/metrics`, saved as JSON arrays (one or many) or as JSON lines."""

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import numpy as np

from trtgate.errors import TraceError
from trtgate.traces.base import ReadOptions, Steps
from trtgate.traces.files import LONGEST_LINE_BYTES, hashing, pieces
from trtgate.traces.rows import CUT_OFF, Origin
from trtgate.traces.steps import BAD_ITERATION, WIDTH, StepRows, step_rows
from trtgate.traces.stepstream import join_steps

STATS = "inflightBatchingStats"
_HINT = "set `enable_iter_perf_stats: true`, send requests, and let only one poller read `/metrics`"
_ROWS = 1 << 16
_CLOSE_CHARS = 32
_NEXT_VALUE = re.compile(r"\n\s*[\[{]")
_BETWEEN = " \t\r\n,[]"


@dataclass(frozen=True, slots=True)
class IterationStatsReader:
    """Objects with `inflightBatchingStats`, one an iteration."""

    name: str = "trtllm-metrics"

    def sniff(self, head: bytes, filename: str) -> bool:  # noqa: ARG002 - the keys say enough
        """Whether the first bytes are JSON with the keys of an iteration, or a list of nothing."""
        text = head.strip()
        return text == b"[]" or (text[:1] in b"[{" and f'"{STATS}"'.encode() in text)

    def read(self, path: Path, options: ReadOptions) -> Steps:
        """Read every iteration that had work; refuses an empty list, as nothing was recorded yet."""
        left_out: Counter[str] = Counter()
        with hashing(path) as digest:
            origin = Origin(path, self.name, "none", digest)
            parts = list(_parts(values(path, left_out), left_out, options.draft_len))
            if not parts and not left_out:
                raise TraceError(f"`{path}` holds no iteration yet", _HINT)
            parts.append(step_rows(np.empty((0, WIDTH)), draft_len=0, padding_known=False))
            parts[-1].dropped.update(left_out)
            return join_steps(parts, origin, merge_ranks=True, hint=_HINT)


def row_of(value: dict[str, Any]) -> list[float]:
    """Return the numbers of one iteration; keys that a back-end leaves out count as unknown."""
    batch = value.get(STATS)
    batch = batch if isinstance(batch, dict) else {}
    rank = value.get("attentionDpRank", value.get("rank", 0))
    return [
        _count(value.get("iter")),
        max(_count(rank), 0),
        _count(batch.get("numScheduledRequests")),
        _count(batch.get("numContextRequests")),
        _count(batch.get("numCtxTokens")),
        _count(batch.get("numGenRequests")),
        -1,
        _step_ms(value),
    ]


def values(path: Path, left_out: Counter[str]) -> Iterator[Any]:
    """Yield the objects of a file of JSON arrays or lines, one at a time, so that memory stays flat."""
    decoder, text = json.JSONDecoder(), ""
    utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for piece in pieces(path):
        text += utf8.decode(piece)
        start = 0
        while True:
            while start < len(text) and text[start] in _BETWEEN:
                start += 1
            if start == len(text):
                break
            try:
                value, start = decoder.raw_decode(text, start)
            except (ValueError, RecursionError) as error:
                start, more = _after_error(text, start, error)
                if more:
                    break
                left_out[BAD_ITERATION] += 1
                continue
            yield value
        text = text[start:]
        if len(text) > LONGEST_LINE_BYTES:
            raise TraceError(
                f"a value in `{path}` is longer than {LONGEST_LINE_BYTES >> 20} MiB or not JSON",
                "save the answers of `/metrics` one after the other",
            )
    if text:
        left_out[CUT_OFF] += 1


def _parts(found: Iterable[Any], left_out: Counter[str], draft_len: int) -> Iterator[StepRows]:
    while some := list(islice(found, _ROWS)):
        rows = [row_of(value) for value in some if isinstance(value, dict)]
        left_out[BAD_ITERATION] += len(some) - len(rows)
        # generation requests stand for their tokens: a request counts once, and drafts are added to it
        table = np.array(rows, np.float64).reshape(-1, WIDTH)
        table[:, 5] *= 1 + draft_len
        yield step_rows(table, draft_len=draft_len, padding_known=False)


def _after_error(text: str, start: int, error: Exception) -> tuple[int, bool]:
    """Return where to read on, and whether that has to wait for more text: the value may only be cut."""
    if isinstance(error, JSONDecodeError):
        cut = error.pos >= len(text) - _CLOSE_CHARS or error.msg.startswith("Unterminated string")
        if cut:
            return start, True
    following = _NEXT_VALUE.search(text, start + 1)
    return (start, True) if following is None else (following.start(), False)


def _count(value: object) -> float:
    whole = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15
    return float(value) if whole else -1.0  # type: ignore[arg-type]


def _step_ms(value: dict[str, Any]) -> float:
    """Return the time of the loop itself; `iterLatencyMS` spans two loops under the overlap scheduler."""
    key = "hostStepTimeMS" if "hostStepTimeMS" in value else "iterLatencyMS"
    if key == "iterLatencyMS" and value.get("schedulerMode") != "non_overlap":
        return float("nan")
    found = _count(value.get(key))
    return found if found > 0 else float("nan")


TRTLLM_METRICS = IterationStatsReader()
