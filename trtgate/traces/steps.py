"""From rows of numbers, as logs and statistics give them, to steps with sizes, padding and losses counted."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from trtgate.traces.base import MAX_TOKENS

# the columns of a row; -1 stands for a count that the source does not give, nan for a time
ITERATION, RANK, SCHEDULED, CTX_REQUESTS, CTX_TOKENS, GEN_TOKENS, DUMMY_CTX_TOKENS, STEP_MS = range(8)
WIDTH = 8
IDLE = "iteration without work"
BAD_ITERATION = "iteration not readable"
ABSURD_ITERATION = f"count above {MAX_TOKENS}"
SAME_ITERATION = "same iteration on another rank"
_REASONS = (BAD_ITERATION, ABSURD_ITERATION, IDLE)
_NO_TIMES = (float("nan"), float("nan"))


@dataclass(frozen=True, slots=True, eq=False)
class StepRows:
    """The usable rows of a piece, as columns, and the count of the others by reason.

    `unmatched` lines hold no iteration; `times_s` are the first and the last time, nan where unknown.
    """

    columns: tuple[NDArray[Any], ...]
    dropped: Counter[str]
    unmatched: int = 0
    without_requests: int = 0
    times_s: tuple[float, float] = _NO_TIMES


def step_rows(rows: NDArray[np.float64], *, draft_len: int, padding_known: bool) -> StepRows:
    """Tell decode from tokens, real from padded, and work from idling; `rows` has shape (n, WIDTH).

    With the number of scheduled requests, dummies are told from requests: a decode size is that number, and
    the tokens of a mixed step count one (and the drafts) for each generation request.
    """
    sizes = np.empty((2, len(rows)), np.int32)
    reason = np.empty(len(rows), np.uint8)
    decode = np.empty(len(rows), np.bool_)
    without_requests = _compiled_classify()(rows, 1 + draft_len, padding_known, sizes, decode, reason)
    dropped = Counter(
        {
            name: int(count)
            for name, count in zip(_REASONS, np.bincount(reason, minlength=4)[1:], strict=True)
            if count
        }
    )
    if dropped:
        fine = reason == 0
        rows, sizes, decode = rows[fine], sizes[:, fine], decode[fine]
    columns = (
        rows[:, ITERATION].astype(np.int32),
        np.maximum(rows[:, RANK], 0).astype(np.int16),
        decode,
        sizes[0],
        sizes[1],
        rows[:, STEP_MS].astype(np.float32),
    )
    return StepRows(columns, dropped, without_requests=without_requests)


@cache
def _compiled_classify() -> Callable[..., int]:
    from numba import njit

    return cast("Callable[..., int]", njit(cache=True, nogil=True)(_classify))


def _classify(  # noqa: PLR0917 - compiled: keywords are not for free
    rows: NDArray[np.float64],
    each: int,
    padding_known: bool,
    sizes: NDArray[np.int32],
    decode: NDArray[np.bool_],
    reason: NDArray[np.uint8],
) -> int:
    """Fill size and padded size, kind and complaint (0 for none); returns rows without a number of requests."""
    without_requests = 0
    for k in range(len(rows)):
        row = rows[k]
        reason[k], sizes[0, k], sizes[1, k], decode[k] = 0, 0, 0, False
        if min(row[ITERATION], row[CTX_REQUESTS], row[CTX_TOKENS], row[GEN_TOKENS]) < 0:
            reason[k] = 1
            continue
        if max(row[:STEP_MS]) > MAX_TOKENS:
            reason[k] = 2
            continue
        known = row[SCHEDULED] >= 0
        ctx_tokens = row[CTX_TOKENS] - max(row[DUMMY_CTX_TOKENS], 0.0)
        decode[k] = row[CTX_REQUESTS] == 0 and ctx_tokens <= 0
        if decode[k]:
            size = row[SCHEDULED] if known else np.ceil(row[GEN_TOKENS] / each)
            padded = row[GEN_TOKENS] / each
        else:
            gen_tokens = row[GEN_TOKENS]
            if known:
                gen_tokens = max(min(gen_tokens, (row[SCHEDULED] - row[CTX_REQUESTS]) * each), 0.0)
            size = ctx_tokens + gen_tokens
            padded = ctx_tokens + row[GEN_TOKENS]
        if size <= 0:
            reason[k] = 3
            continue
        without_requests += not known
        sizes[0, k] = size
        # of a mixed step only an excess tells padding; its bucket is not in the log
        shown = padded >= size if decode[k] else padded > size
        sizes[1, k] = padded if known and padding_known and shown and padded % 1 == 0 else 0
    return without_requests
