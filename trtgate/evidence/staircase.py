"""The requests that make a runtime visit every bucket: one staircase of decode sizes, one prompt a token size."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trtgate.loads.base import Ask

PROMPT_TOKENS = 4
DEFAULT_VOCAB = 256  # ids below this exist in any vocabulary


@dataclass(frozen=True, slots=True)
class Visit:
    """Requests sent together, and the step sizes that they are meant to bring about."""

    kind: str
    sizes: tuple[int, ...]
    asks: tuple[Ask, ...]


def visited_sizes(buckets: Sequence[int], ceiling: int) -> tuple[int, ...]:
    """The sizes worth a visit, descending: each bucket, the size just above the one below it, one above the largest.

    The size just above a bucket is padded the most on its way to the next one; the size above the largest bucket
    runs eager. `ceiling` is the largest size the runtime can schedule.
    """
    sizes = {1}
    for bucket in buckets:
        sizes.update((bucket, bucket + 1))
    return tuple(sorted((size for size in sizes if size <= ceiling), reverse=True))


def decode_staircase(
    buckets: Sequence[int], *, ceiling: int, repeat: int, max_seq_len: int, vocab_size: int, seed: int
) -> Visit:
    """As many requests as the largest size, their lengths staggered so that the batch walks down through all sizes.

    Each size lasts about `repeat` steps. The first request sent is the longest, so that requests also end in order.
    Lengths are shortened where `max_seq_len` does not allow so many steps.
    """
    sizes = visited_sizes(buckets, ceiling)
    room = max_seq_len - PROMPT_TOKENS - 1
    repeat = max(1, min(repeat, room // len(sizes) - 1))
    lead = min(room - repeat * len(sizes), repeat + 2)  # time for all requests to have arrived
    asks = []
    for index in range(sizes[0]):
        steps = sum(1 for size in sizes if size > index)  # levels in which this request still runs
        prompt = random_prompt(PROMPT_TOKENS, vocab_size, (seed, index))
        asks.append(Ask(at_s=0.0, prompt=prompt, max_tokens=lead + repeat * steps, tag="decode"))
    return Visit("decode", sizes, tuple(asks))


def token_visits(
    buckets: Sequence[int], *, ceiling: int, max_seq_len: int, answer_tokens: int, vocab_size: int, seed: int
) -> tuple[Visit, ...]:
    """One visit a token size; sizes beyond one request's length are made of several requests sent at once."""
    longest = max_seq_len - answer_tokens
    visits = []
    for size in visited_sizes(buckets, ceiling) if buckets else ():
        lengths = [longest] * (size // longest) + ([size % longest] if size % longest else [])
        asks = tuple(
            Ask(
                at_s=0.0,
                prompt=random_prompt(length, vocab_size, (seed, size, part)),
                max_tokens=answer_tokens,
                tag=f"tokens {size}",
            )
            for part, length in enumerate(lengths)
        )
        visits.append(Visit("tokens", (size,), asks))
    return tuple(visits)


def random_prompt(length: int, vocab_size: int, seed: tuple[int, ...]) -> tuple[int, ...]:
    """Token ids that depend on nothing but their seed; the two lowest ids, often special, are left out."""
    return tuple(np.random.default_rng(seed).integers(2, vocab_size, length).tolist())
