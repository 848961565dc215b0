"""Shared beginnings are shared to the token, and nothing else is."""

from itertools import takewhile

import pytest

from trtgate.errors import UsageError
from trtgate.loads.arrivals import asks_from_columns, to_text
from trtgate.loads.prefixes import asks_from_blocks, converse, share_prefix


def asks(*lengths):
    rows = len(lengths)
    return asks_from_columns([0.0] * rows, lengths, [2] * rows, vocab_size=500, seed=3)


def common(first, second):
    return len(
        list(takewhile(lambda pair: pair[0] == pair[1], zip(first.prompt, second.prompt, strict=False)))
    )


def test_rows_share_exactly_the_blocks_that_both_name():
    got = asks_from_blocks(
        [0, 1, 2], [10, 12, 7], [1, 1, 1], [[5, 6], [5, 6, 7], [8]], block_tokens=4, vocab_size=500, seed=1
    )
    assert [len(list(ask.prompt)) for ask in got] == [10, 12, 7]
    assert common(got[0], got[1]) == 8
    assert common(got[0], got[2]) < 4


def test_the_last_block_is_cut_to_the_length_of_the_prompt():
    long, short = asks_from_blocks(
        [0, 1], [8, 6], [1, 1], [[1, 2], [1, 2]], block_tokens=4, vocab_size=500, seed=1
    )
    assert list(short.prompt) == list(long.prompt)[:6]


def test_groups_share_their_prefix_and_no_other():
    got = share_prefix(asks(20, 20, 20), 2, 8)
    assert common(got[0], got[2]) == 8
    assert common(got[0], got[1]) < 8


def test_a_prefix_longer_than_the_prompt_is_cut():
    assert len(list(share_prefix(asks(5), 1, 9)[0].prompt)) == 5


def test_a_turn_begins_with_the_turn_before_and_waits_for_it():
    first, other, second, third = converse(asks(10, 9, 15, 30), ["a", "b", "a", "a"], [0.0, 0.0, 2.0, 3.0])
    assert (first.after, other.after, second.after, third.after) == (None, None, 0, 2)
    assert (second.at_s, third.at_s) == (2.0, 3.0)
    assert common(first, second) == 10
    assert common(second, third) == 15
    assert len(list(third.prompt)) == 30


@pytest.mark.parametrize("groups", [0, -1])
def test_no_groups_are_refused(groups):
    with pytest.raises(UsageError):
        share_prefix(asks(5), groups, 2)


def test_text_prompts_cannot_be_given_a_prefix():
    with pytest.raises(UsageError, match="token ids"):
        share_prefix(to_text(asks(5), seed=1), 1, 2)


def test_text_has_as_many_words_and_parts_within_the_first_three():
    texts = [ask.prompt.split() for ask in to_text(asks(*[6] * 200), seed=1)]
    assert {len(words) for words in texts} == {6}
    assert len({tuple(words[:3]) for words in texts}) == 200


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(UsageError, match="2, 1 and 2 rows"):
        converse(asks(5, 5), ["a"], [0.0, 0.0])
    with pytest.raises(UsageError, match="1 requests but 2"):
        asks_from_blocks([0], [5], [1], [[], []], block_tokens=4, vocab_size=500, seed=1)
