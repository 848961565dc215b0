"""Requests that share beginnings, as traffic does: the blocks of a trace, groups, the turns of conversations."""

from collections.abc import Sequence
from dataclasses import replace

from numpy.typing import ArrayLike

from trtgate.errors import UsageError
from trtgate.loads.arrivals import asks_from_columns
from trtgate.loads.base import Ask
from trtgate.loads.prompts import Prompt, hash_key


def asks_from_blocks(
    arrival_s: ArrayLike,
    prompt_tokens: ArrayLike,
    output_tokens: ArrayLike,
    blocks: Sequence[Sequence[int]],
    *,
    block_tokens: int,
    vocab_size: int,
    seed: int,
) -> list[Ask]:
    """As `asks_from_columns`, with the shared prefixes of a trace: rows that name a block share its tokens.

    `blocks` has the ids of a row's blocks in order, of `block_tokens` each (512 in Mooncake's traces), the last
    one cut to the prompt's length; what no block covers is the row's own.
    """
    plain = asks_from_columns(arrival_s, prompt_tokens, output_tokens, vocab_size=vocab_size, seed=seed)
    if len(blocks) != len(plain):
        raise UsageError(f"{len(plain)} requests but {len(blocks)} lists of blocks", "give one a request")
    known = {
        name: Prompt(hash_key(seed, name), block_tokens, vocab_size) for names in blocks for name in names
    }
    return [
        replace(
            ask, prompt=Prompt(seed, len(ask.prompt), vocab_size, row, tuple(known[name] for name in names))
        )
        for row, (ask, names) in enumerate(zip(plain, blocks, strict=True))
    ]


def share_prefix(asks: Sequence[Ask], groups: int, prefix_tokens: int) -> list[Ask]:
    """Give request i the first `prefix_tokens` of group i mod `groups`, within its length; the rest is its own."""
    if groups < 1 or prefix_tokens < 0:
        raise UsageError(f"`{groups}` groups of `{prefix_tokens}` tokens", "at least 1 group")
    shared = []
    for place, ask in enumerate(asks):
        if not isinstance(ask.prompt, Prompt):
            raise UsageError(
                "only prompts of token ids have shared prefixes", "make the requests from columns"
            )
        key = hash_key(ask.prompt.seed, -1 - place % groups)
        prefix = Prompt(key, min(prefix_tokens, len(ask.prompt)), ask.prompt.vocab_size)
        shared.append(replace(ask, prompt=replace(ask.prompt, blocks=(prefix,))))
    return shared


def converse(asks: Sequence[Ask], sessions: Sequence[str], think_s: Sequence[float]) -> list[Ask]:
    """Make the requests of a session its turns: each waits for the one before it, then for its `think_s`.

    The prompt of a turn begins with the whole prompt of the one before; what the server had answered is not
    in it, since output is not known beforehand, and its place is taken by tokens of the turn's own.
    """
    if not len(asks) == len(sessions) == len(think_s):
        lengths = f"{len(asks)}, {len(sessions)} and {len(think_s)}"
        raise UsageError(f"columns have {lengths} rows", "give one session and pause a request")
    last: dict[str, int] = {}
    turns: list[Ask] = []
    for place, (ask, session) in enumerate(zip(asks, sessions, strict=True)):
        if not isinstance(ask.prompt, Prompt):
            raise UsageError("only prompts of token ids make conversations", "make the requests from columns")
        before = last.get(session)
        if before is None:
            turns.append(replace(ask, after=None))
        else:
            past = turns[before].prompt
            assert isinstance(past, Prompt)
            prompt = replace(ask.prompt, blocks=(past,))
            turns.append(replace(ask, prompt=prompt, at_s=float(think_s[place]), after=before))
        last[session] = place
    return turns
