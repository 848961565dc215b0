"""Whether two answers to one prompt agree: equal tokens, or log-probabilities within a stated tolerance."""

from collections.abc import Sequence

from trtgate.loads.base import Answer


def agree(reference: Answer, answer: Answer, tolerance: float) -> bool | None:
    """Whether `answer` says what `reference` says, over the length that both have; None where it cannot be told.

    With a tolerance of 0 the tokens must be identical. Above 0 they may part where both runs were about equally sure
    of what they said: the log-probabilities up to and including the first difference must be that close.
    """
    first, second = reference.token_ids, answer.token_ids
    if not (reference.ok and answer.ok) or first is None or second is None:
        return None
    length = min(len(first), len(second))
    if length == 0:
        return None
    parting = next((index for index in range(length) if first[index] != second[index]), None)
    if tolerance == 0:
        return parting is None
    if reference.logprobs is None or answer.logprobs is None:
        return None
    end = length if parting is None else parting + 1
    pairs = zip(reference.logprobs[:end], answer.logprobs[:end], strict=False)
    return all(abs(one - other) <= tolerance for one, other in pairs)


def count_wrong(references: Sequence[Answer], answers: Sequence[Answer], tolerance: float) -> tuple[int, int]:
    """How many answers could be compared with their reference, and how many of them were wrong."""
    results = [agree(one, other, tolerance) for one, other in zip(references, answers, strict=False)]
    known = [result for result in results if result is not None]
    return len(known), known.count(False)
