"""Answers and steps made up for tests."""

from array import array
from math import nan

from trtgate.loads.base import Answer
from trtgate.runtimes.base import Step


def answer(
    ids: tuple[int, ...] | None = (5, 6, 7),
    *,
    logprobs: tuple[float, ...] | None = None,
    error: str | None = None,
    index: int = 0,
) -> Answer:
    """One answer with the given tokens; all times unknown."""
    return Answer(
        index=index,
        tag="",
        scheduled_s=0.0,
        sent_s=0.0,
        first_s=nan,
        last_s=nan,
        end_s=nan,
        connect_s=nan,
        queued=False,
        chunk_s=array("d"),
        chunk_tokens=array("l"),
        chunk_tokens_known=True,
        tokens=len(ids or ()),
        max_tokens=len(ids or ()),
        prompt_tokens=4,
        tokens_source="token_ids",
        error=error,
        detail="",
        status=200,
        finish_reason="length",
        packed_ids=None if ids is None else array("l", ids),
        logprobs=logprobs,
    )


def step(
    kind: str,
    size: int,
    bucket: int | None,
    ms: float | None = 1.0,
    *,
    replayed: bool | None = None,
    reason: str | None = None,
) -> Step:
    """One iteration; replayed where it has a bucket, unless said otherwise."""
    return Step(
        iteration=0,
        kind=kind,
        size=size,
        bucket=bucket,
        replayed=bucket is not None if replayed is None else replayed,
        reason=reason,
        predicted=False,
        step_ms=ms,
    )
