"""Prompts of an exact number of token ids, made when needed: a million of them take no memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

_FIRST_ID = 16
_DIGITS = 3
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


@dataclass(frozen=True, slots=True)
class Prompt(Sequence[int]):
    """`length` seeded token ids below `vocab_size`; equal fields give equal ids on every machine.

    Where `number` is given the first three ids spell it, so that prompts of different numbers part at once
    and no cache serves one from another. `blocks` are prompts that this one begins with, and may share with others.
    """

    seed: int
    length: int
    vocab_size: int
    number: int | None = None
    blocks: "tuple[Prompt, ...]" = ()

    def ids(self) -> NDArray[np.int64]:
        """The token ids, shape (length,)."""
        base = min(_FIRST_ID, self.vocab_size // 2)
        span = self.vocab_size - base
        parts = [block.ids() for block in self.blocks]
        rest = max(self.length - sum(len(block) for block in self.blocks), 0)
        parts.append(self._own(rest, span) + base)
        return np.concatenate(parts)[: self.length]

    def _own(self, length: int, span: int) -> NDArray[np.int64]:
        if self.number is None:
            return _draw(self.seed, length, span)
        own = _draw(hash_key(self.seed, self.number), length, span)
        digits = [self.number // span**place for place in range(min(_DIGITS, length))]
        own[: len(digits)] = (np.array(digits, dtype=np.int64) + hash_key(self.seed) % span) % span
        return own

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids().tolist())

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        return self.ids().tolist()[place]  # type: ignore[no-any-return]


_TEXT = """the of and to in is it for on with as at by from that this be are was or an not but we you he she
they his her one all can has had more new time up out so what when who no if will about which their there been
after two also its into first some than other only over year"""
_WORDS = tuple(_TEXT.split())


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """`length` common English words, for endpoints that take text only: about one token each.

    How many tokens they became, with the chat template, the server says in `Answer.prompt_tokens`.
    """

    seed: int
    length: int
    number: int | None = None

    def text(self) -> str:
        """The words; those of two numbers part within the first three."""
        ids = Prompt(self.seed, self.length, len(_WORDS) + _FIRST_ID, self.number).ids() - _FIRST_ID
        return " ".join(_WORDS[place] for place in ids.tolist())


def hash_key(*parts: int) -> int:
    """One key of several numbers, below 2^63."""
    key = 0
    for part in parts:
        key = (((key ^ part) & _MASK) * _GOLDEN + _GOLDEN) & _MASK
        key = ((key ^ (key >> 30)) * _MIX[0]) & _MASK
        key = ((key ^ (key >> 27)) * _MIX[1]) & _MASK
        key ^= key >> 31
    return key >> 1


def _draw(key: int, length: int, span: int) -> NDArray[np.int64]:
    """Uniform numbers below `span`: SplitMix64 (Steele, Lea, Flood 2014) at places 0, 1, ..."""
    mixed = (np.arange(length, dtype=np.uint64) + np.uint64(hash_key(key))) * np.uint64(_GOLDEN)
    mixed += np.uint64(_GOLDEN)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_MIX[0])
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_MIX[1])
    return ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(span)).astype(np.int64)
