"""Schedules have the rate and shape asked for; prompts have the exact length."""

import numpy as np
import pytest

from trtgate.errors import UsageError
from trtgate.loads.arrivals import asks_from_columns, closed_loop, constant, gamma, poisson, ramp, replay
from trtgate.loads.prompts import Prompt


def asks(count, *, seed=1, **options):
    return asks_from_columns(range(count), [20] * count, [5] * count, vocab_size=300, seed=seed, **options)


def test_a_prompt_has_its_exact_length_and_ids_of_the_vocabulary():
    for length in (1, 2, 3, 17):
        ids = Prompt(3, length, 300, number=7).ids()
        assert len(ids) == length
        assert 0 <= ids.min() <= ids.max() < 300


def test_prompts_are_equal_for_equal_seeds_and_differ_for_others():
    first, again, other = asks(5), asks(5), asks(5, seed=2)
    assert [list(ask.prompt) for ask in first] == [list(ask.prompt) for ask in again]
    assert all(list(a.prompt) != list(b.prompt) for a, b in zip(first, other, strict=True))


def test_prompt_ids_stay_the_same_between_versions():
    assert list(Prompt(1, 6, 1000, number=2)) == GOLDEN


GOLDEN = [996, 994, 994, 678, 188, 451]


def test_no_two_prompts_share_their_first_ids():
    prefixes = {tuple(ask.prompt[:3]) for ask in asks(2000)}
    assert len(prefixes) == 2000


def test_without_unique_prefix_every_prompt_begins_alike():
    got = asks(3, unique_prefix=False)
    assert list(got[0].prompt) == list(got[2].prompt)


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(UsageError, match="2, 1 and 2 rows"):
        asks_from_columns([0, 1], [3], [4, 4], vocab_size=300, seed=1)


def test_replay_takes_the_offset_off_before_it_divides_the_gaps():
    assert replay([1178.625, 1180.625, 1181.625], speed=2).tolist() == [0.0, 1.0, 1.5]


def test_constant_times_are_evenly_spaced():
    assert constant(3, 4.0).tolist() == [0.0, 0.25, 0.5]


def test_poisson_gaps_have_the_mean_and_spread_of_the_rate():
    gaps = np.diff(poisson(20_000, 50.0, seed=5))
    assert gaps.mean() == pytest.approx(0.02, rel=0.03)
    assert gaps.std() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("burstiness", [0.25, 4.0])
def test_gamma_gaps_vary_by_one_over_the_root_of_burstiness(burstiness):
    gaps = np.diff(gamma(20_000, 50.0, burstiness=burstiness, seed=5))
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.05)


def test_a_ramp_begins_and_ends_at_its_rates():
    times = ramp(10_000, 10.0, 100.0)
    assert 1 / (times[1] - times[0]) == pytest.approx(10, rel=0.05)
    assert 1 / (times[-1] - times[-2]) == pytest.approx(100, rel=0.01)


def test_a_closed_loop_follows_its_own_stream():
    got = closed_loop(asks(5), 2, think_s=0.5, ramp_s=1.0)
    assert [ask.after for ask in got] == [None, None, 0, 1, 2]
    assert [ask.at_s for ask in got] == [0.0, 0.5, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_an_impossible_rate_is_refused(rate):
    with pytest.raises(UsageError):
        constant(3, rate)


@pytest.mark.parametrize(
    "make",
    [
        lambda: constant(0, 1.0),
        lambda: gamma(5, 1.0, burstiness=0.0, seed=1),
        lambda: replay([0.0], speed=0.0),
        lambda: closed_loop(asks(2), 0),
        lambda: asks_from_columns([0], [1], [1], vocab_size=8, seed=1),
        lambda: asks(2, tags=["a"]),
    ],
)
def test_what_cannot_be_a_schedule_is_refused(make):
    with pytest.raises(UsageError):
        make()


def test_an_even_ramp_is_constant():
    assert ramp(3, 2.0, 2.0).tolist() == [0.0, 0.5, 1.0]


def test_tags_go_with_their_rows():
    assert [ask.tag for ask in asks(2, tags=["short", "long"])] == ["short", "long"]
