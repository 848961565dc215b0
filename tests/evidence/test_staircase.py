import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtgate.evidence.staircase import PROMPT_TOKENS, decode_staircase, token_visits, visited_sizes


def test_each_bucket_the_size_above_the_one_below_and_one_above_the_largest_are_visited() -> None:
    assert visited_sizes((1, 4, 8), ceiling=16) == (9, 8, 5, 4, 2, 1)


def test_nothing_above_the_ceiling_is_visited() -> None:
    assert visited_sizes((1, 4, 8), ceiling=8) == (8, 5, 4, 2, 1)


def active(lengths: list[int], step: int) -> int:
    """Requests that still run at a step, if all start together and give one token a step."""
    return sum(length > step for length in lengths)


@given(
    st.sets(st.integers(1, 64), min_size=1, max_size=12),
    st.integers(1, 8),
    st.integers(128, 2048),
)
def test_the_staircase_walks_through_every_size_and_fits_the_limits(
    sizes: set[int], repeat: int, length: int
) -> None:
    visit = decode_staircase(
        sorted(sizes), ceiling=64, repeat=repeat, max_seq_len=length, vocab_size=300, seed=1
    )
    lengths = [ask.max_tokens for ask in visit.asks]
    walked = {active(lengths, step) for step in range(max(lengths))}
    assert walked == set(visit.sizes)
    assert max(lengths) + PROMPT_TOKENS <= length


def test_the_first_request_sent_is_the_longest() -> None:
    visit = decode_staircase((1, 2, 4), ceiling=4, repeat=5, max_seq_len=256, vocab_size=300, seed=1)
    lengths = [ask.max_tokens for ask in visit.asks]
    assert lengths == sorted(lengths, reverse=True)
    assert len(lengths) == 4


def test_prompts_are_all_different_and_the_same_for_the_same_seed() -> None:
    one, again, other = (
        decode_staircase((1, 8), ceiling=8, repeat=2, max_seq_len=64, vocab_size=300, seed=seed).asks
        for seed in (1, 1, 2)
    )
    assert len({ask.prompt for ask in one}) == len(one)
    assert one == again
    assert one != other


def test_a_token_bucket_is_visited_by_one_prompt_of_exactly_its_size() -> None:
    visits = token_visits((16, 32), ceiling=64, max_seq_len=64, answer_tokens=4, vocab_size=300, seed=1)
    assert [[len(ask.prompt) for ask in visit.asks] for visit in visits] == [[33], [32], [17], [16], [1]]


def test_a_token_bucket_beyond_one_request_is_made_of_several() -> None:
    visits = token_visits((100,), ceiling=100, max_seq_len=64, answer_tokens=4, vocab_size=300, seed=1)
    assert [len(ask.prompt) for ask in visits[0].asks] == [60, 40]


@pytest.mark.parametrize("buckets", [(), (5,)])
def test_without_token_buckets_no_prompt_is_sent(buckets: tuple[int, ...]) -> None:
    visits = token_visits(buckets, ceiling=64, max_seq_len=64, answer_tokens=4, vocab_size=300, seed=1)
    assert bool(visits) == bool(buckets)
