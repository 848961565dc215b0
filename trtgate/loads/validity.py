"""Whether a run measured the server or its own client: reasons for INVALID, whatever the latencies are."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trtgate.loads.base import LoadResult
from trtgate.loads.metrics import quantile, samples

# Where the client may add a millisecond, no margin of a percentage is finer than that.
FLOOR_MS = 1.0
# A p99 rests on one gap in a hundred: a fifth of those may be blurred.
_BLIND_SHARE = 0.002
_DELIVERED_SHARE = 0.98
_BUSY_SHARE = 0.95
_OWN_ERRORS = ("too many open files", "no free port", "not sent")


def valid(
    result: LoadResult, margin: float, *, believed_tokens_per_s: float | None = None
) -> tuple[str, ...]:
    """The reasons why a run proves nothing, none where it may be judged.

    `margin` is the relative difference to be told (0.10), `believed_tokens_per_s` what `selfcheck` found.
    They concern the instrument and the load only; failed requests are the business of the judge.
    """
    return tuple(_reasons(result, margin, believed_tokens_per_s))


def late_limit_ms(ttft_ms: NDArray[np.float64], margin: float) -> float:
    """How late requests may be sent: the margin of the median TTFT, no finer than 1 ms."""
    return max(margin * quantile(ttft_ms, 0.5), FLOOR_MS) if ttft_ms.size else FLOOR_MS


def _reasons(result: LoadResult, margin: float, believed: float | None) -> Iterator[str]:
    bar = result.instrument
    done = [answer for answer in result.answers if answer.ok]
    yield from _own_errors(result)
    if bar.delivered < _DELIVERED_SHARE:
        yield f"{bar.delivered:.1%} of the load asked for was sent, limit {_DELIVERED_SHARE:.0%}"
    if bar.cpu > _BUSY_SHARE:
        yield f"the client used {bar.cpu:.0%} of its core, limit {_BUSY_SHARE:.0%}"
    if bar.clock_step_ms > FLOOR_MS:
        yield f"the clock of this host was moved by {bar.clock_step_ms:.1f} ms during the run"
    if not done:
        yield f"0 of {len(result.answers)} requests completed"
        return
    got = samples(result)
    limit_ms = late_limit_ms(got["ttft_ms"], margin)
    if bar.late_p99_ms > limit_ms:
        yield f"requests were sent {bar.late_p99_ms:.1f} ms late at p99, limit {limit_ms:.1f} ms"
    if bar.blind > _BLIND_SHARE and bar.lag_p99_ms > _gap_limit_ms(got["itl_ms"], margin):
        yield f"{bar.blind:.2%} of chunks were read too late to tell them apart, limit {_BLIND_SHARE:.1%}"
    unequal = sum(answer.tokens != answer.max_tokens for answer in done)
    if unequal:
        yield f"{unequal} of {len(done)} answers have another length than asked for"
    rate = sum(answer.tokens for answer in done) / result.duration_s
    if believed is not None and rate > believed:
        yield f"{rate:.0f} tokens/s came, but this client is believed up to {believed:.0f}"


def _gap_limit_ms(gaps_ms: NDArray[np.float64], margin: float) -> float:
    """How late a read may be before it moves the p99 of gaps by more than the margin."""
    return max(margin * quantile(gaps_ms, 0.99), FLOOR_MS) if gaps_ms.size else FLOOR_MS


def _own_errors(result: LoadResult) -> Iterator[str]:
    for error in _OWN_ERRORS:
        count = sum(answer.error == error for answer in result.answers)
        if count:
            yield f"{count} of {len(result.answers)} requests ended as `{error}` on this side"
