"""Whether two answers to one prompt agree: equal tokens, or log-probabilities within a stated tolerance."""

import math
from collections.abc import Sequence

from trtgate.loads.base import Answer

Scores = Sequence[float]


def agree(reference: Answer, answer: Answer, tolerance: float) -> bool | None:
    """Whether `answer` says what `reference` says, over the length that both have; None where it cannot be told.

    With a tolerance of 0 the tokens must be identical. Above 0 they may part where neither run was surer of its token
    than two runs within the tolerance can be: the log-probabilities up to and including the first difference must be
    that close. A server that names no tokens is compared by its log-probabilities alone.
    """
    if not (reference.ok and answer.ok):
        return None
    first, second = reference.token_ids, answer.token_ids
    if first is None or second is None:
        return _scores_agree(reference.logprobs or (), answer.logprobs or (), tolerance)
    length = min(len(first), len(second))
    parting = next((index for index in range(length) if first[index] != second[index]), None)
    if tolerance == 0 or length == 0:
        return None if length == 0 else parting is None
    end = length if parting is None else parting + 1
    one, other = (reference.logprobs or ())[:end], (answer.logprobs or ())[:end]
    if min(len(one), len(other)) < end or not all(map(math.isfinite, one)):
        return None
    close = all(_close(a, b, tolerance) for a, b in zip(one, other, strict=True))
    return close and (parting is None or _may_part(one[-1], other[-1], tolerance))


def count_wrong(references: Sequence[Answer], answers: Sequence[Answer], tolerance: float) -> tuple[int, int]:
    """How many answers could be compared with their reference, and how many of them were wrong."""
    results = [agree(one, other, tolerance) for one, other in zip(references, answers, strict=False)]
    known = [result for result in results if result is not None]
    return len(known), known.count(False)


def _scores_agree(first: Scores, second: Scores, tolerance: float) -> bool | None:
    """By log-probabilities alone: what comes after a place where the tokens may have parted cannot be told."""
    length = min(len(first), len(second))
    if tolerance == 0 or length == 0 or not all(map(math.isfinite, first[:length])):
        return None
    for one, other in zip(first, second, strict=False):
        if not _close(one, other, tolerance):
            return False
        if _may_part(one, other, tolerance):
            break
    rest = zip(first, second, strict=False)
    return True if all(_close(one, other, tolerance) for one, other in rest) else None


def _close(one: float, other: float, tolerance: float) -> bool:
    return abs(one - other) <= tolerance  # false where the candidate's is no number


def _may_part(one: float, other: float, tolerance: float) -> bool:
    """Whether runs within the tolerance can prefer different tokens: the two cannot hold more than all probability."""
    first, second = min(one, 0.0), min(other, 0.0)
    most = max(math.exp(first) + math.exp(second - tolerance), math.exp(second) + math.exp(first - tolerance))
    return most <= 1 + 1e-6
