"""The visits of a calibration: which sizes, in which order, and the requests that make a step of exactly that size."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trtgate.evidence.staircase import PROMPT_TOKENS, random_prompt
from trtgate.loads.base import Ask
from trtgate.profile import Profile
from trtgate.runtimes.base import Grids, Kind

KINDS: tuple[Kind, Kind] = ("decode", "tokens")
FEWEST = 2  # sizes of a curve
WAVE_STEPS = 16  # decode steps wanted of a wave, after all of its requests have arrived
ARRIVAL_STEPS = 8  # and what their arrival may take
PLUG_LEAD_S = 0.001
EXTRA_ROUNDS = 3  # for sizes that were missed

Key = tuple[Kind, int]


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The largest step of each kind."""

    decode: int
    tokens: int

    def of(self, kind: Kind) -> int:
        """That of one kind."""
        return self.decode if kind == "decode" else self.tokens


def ceilings_of(profile: Profile) -> Ceilings:
    """The largest decode and token step that the profile's limits allow."""
    limits = profile.limits
    return Ceilings(
        min(limits.max_batch_size, limits.max_num_tokens // (1 + limits.draft_len)),
        min(limits.max_num_tokens, limits.max_batch_size * (limits.max_seq_len - 1)),
    )


def log_spaced(largest: int, points: int) -> tuple[int, ...]:
    """At most `points` sizes from 1 to `largest`, both included, at equal ratios; fewer where they coincide."""
    if largest < 1:
        return ()
    spaced = np.geomspace(1, largest, max(points, FEWEST)).round().astype(int)
    return tuple(sorted({1, largest, *spaced.tolist()}))


def within(grids: Grids, ceilings: Ceilings) -> Grids:
    """The sizes that a step can have."""
    return Grids(
        tuple(size for size in grids.decode if size <= ceilings.decode),
        tuple(size for size in grids.tokens if size <= ceilings.tokens),
    )


def joined(one: Grids, other: Grids) -> Grids:
    """All sizes of both."""
    return Grids(tuple(sorted({*one.decode, *other.decode})), tuple(sorted({*one.tokens, *other.tokens})))


def keys_of(sizes: Grids) -> list[Key]:
    """All sizes as (kind, size)."""
    return [*(("decode", size) for size in sizes.decode), *(("tokens", size) for size in sizes.tokens)]


def rounds_of(sizes: Grids, seed: int) -> Iterator[list[Key]]:
    """Endless rounds, each a fresh random order of all sizes; the same for the same seed."""
    every, random = keys_of(sizes), np.random.default_rng(seed)
    while True:
        yield [every[place] for place in random.permutation(len(every))]


def due(order: Sequence[Key], hits: Mapping[Key, int], number: int, wanted: int) -> list[Key]:
    """What round `number` (from 0) still has to visit; nothing once it is hopeless.

    That is after `EXTRA_ROUNDS`, or after a first round that met no size at all: steps are not told then.
    """
    if number >= wanted + EXTRA_ROUNDS or (number and not any(hits.values())):
        return []
    return [key for key in order if hits.get(key, 0) < wanted]


def wave(size: int, max_seq_len: int, vocab_size: int, seed: tuple[int, ...], missed: int = 0) -> list[Ask]:
    """As many requests as the size, all of one length; twice as long after each wave that missed it.

    The length leaves time for all of them to have arrived before the first ends.
    """
    wanted = (WAVE_STEPS + ARRIVAL_STEPS + size // 4) << missed
    length = max(1, min(wanted, max_seq_len - PROMPT_TOKENS))
    return [
        Ask(0.0, random_prompt(PROMPT_TOKENS, vocab_size, (*seed, part)), length, tag=f"decode {size}")
        for part in range(size)
    ]


def prompts(size: int, max_seq_len: int, vocab_size: int, seed: tuple[int, ...]) -> list[Ask]:
    """Prompts of `size` tokens together, one token to answer; several where one request cannot hold them.

    Several are sent while a prompt of the longest length keeps the runtime busy, so that the next step takes
    all of them at once.
    """
    longest = max_seq_len - 1
    whole, rest = divmod(size, longest)
    lengths = [longest] * whole + ([rest] if rest else [])
    sent = [(0.0, length) for length in lengths]
    if len(lengths) > 1:
        sent = [(0.0, longest), *((PLUG_LEAD_S, length) for length in lengths)]
    return [
        Ask(at_s, random_prompt(length, vocab_size, (*seed, part)), 1, tag=f"tokens {size}")
        for part, (at_s, length) in enumerate(sent)
    ]
