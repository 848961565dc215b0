"""The simulation, held against one that goes iteration by iteration and request by request."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plans.samples import costs, steps_by_hand, trace
from trtgate.errors import UsageError
from trtgate.plans.simulate import Limits, simulate


def limits(**changes):
    return Limits(**{"max_batch_size": 4, "max_num_tokens": 16, "max_seq_len": 64, **changes})


def counts(bins):
    return dict(zip(bins.low, bins.steps, strict=True))


@st.composite
def traffic(draw):
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 20), st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=12
        )
    )
    gaps, prompts, outputs = zip(*rows, strict=True)
    arrivals_s = np.cumsum((0, *gaps[1:])) * draw(st.sampled_from((0.0, 0.0005, 0.001, 0.0037)))
    return trace(arrivals_s, prompts, outputs)


@st.composite
def some_limits(draw):
    draft_len = draw(st.integers(0, 3))
    return Limits(
        max_batch_size=draw(st.integers(1, 6)),
        max_num_tokens=draw(st.integers(1 + draft_len, 40)),
        max_seq_len=draw(st.integers(20, 80)),
        chunked_prefill=draw(st.booleans()),
        kv_tokens=draw(st.none() | st.integers(30, 150)),
        draft_len=draft_len,
        accepted_len=draw(st.integers(0, draft_len)),
        replicas=draw(st.integers(1, 3)),
    )


@settings(max_examples=200, deadline=None)
@given(traffic(), some_limits(), st.sampled_from((1.0, 0.5, 4.0)))
def test_every_bin_equals_the_iteration_by_iteration_version(requests, held, speed_up):
    decode, tokens = steps_by_hand(requests, held, costs(), speed_up)
    if not decode and not tokens:
        with pytest.raises(UsageError, match="no request fits"):
            simulate(requests, held, costs(), speed_up=speed_up)
        return
    histogram = simulate(requests, held, costs(), speed_up=speed_up)
    assert (counts(histogram.decode), counts(histogram.tokens)) == (decode, tokens)


def test_one_request_takes_one_context_step_and_one_decode_step_a_further_token():
    histogram = simulate(trace([0], [10], [5]), limits(), costs())
    assert (counts(histogram.tokens), counts(histogram.decode)) == ({10: 1}, {1: 4})


def test_a_long_prompt_is_cut_into_chunks_of_the_token_limit():
    histogram = simulate(trace([0], [40], [1]), limits(), costs())
    assert counts(histogram.tokens) == {8: 1, 16: 2}


def test_a_prompt_joins_running_requests_in_one_mixed_step():
    histogram = simulate(trace([0, 0.002], [4, 5], [9, 1]), limits(), costs())
    assert counts(histogram.tokens) == {4: 1, 6: 1}


def test_a_full_batch_makes_the_next_request_wait():
    histogram = simulate(trace([0, 0], [4, 4], [3, 3]), limits(max_batch_size=1), costs())
    assert (counts(histogram.tokens), counts(histogram.decode)) == ({4: 2}, {1: 4})


def test_a_full_cache_makes_the_next_request_wait():
    wide, tight = (simulate(trace([0, 0], [4, 4], [3, 3]), limits(kv_tokens=kv), costs()) for kv in (14, 13))
    assert (counts(wide.decode), counts(tight.decode)) == ({2: 2}, {1: 4})


def test_draft_tokens_take_slots_and_accepted_ones_save_steps():
    histogram = simulate(trace([0], [4], [9]), limits(draft_len=3, accepted_len=1), costs())
    assert counts(histogram.decode) == {1: 4}


def test_replicas_share_the_requests_in_turn():
    histogram = simulate(trace([0, 0], [4, 6], [3, 3]), limits(replicas=2), costs())
    assert (counts(histogram.tokens), counts(histogram.decode)) == ({4: 1, 6: 1}, {1: 4})


def test_a_service_that_keeps_up_is_done_one_answer_after_the_last_arrival():
    last_answer_s = (costs().token_eager.at(4) + 2 * costs().decode_replay.at(1)) / 1e3
    histogram = simulate(trace([0, 1], [4, 4], [3, 3]), limits(), costs())
    assert histogram.drain_s == pytest.approx(float(last_answer_s))


def test_requests_that_no_step_can_hold_are_counted_by_reason():
    requests = trace([0, 0, 0, 0], [4, 17, 64, 30], [2, 2, 2, 20])
    histogram = simulate(requests, limits(chunked_prefill=False, kv_tokens=40), costs())
    assert histogram.refused == {"prompt over `max_seq_len`": 1, "prompt over `max_num_tokens`": 2}
    assert histogram.requests == 1


def test_answers_are_cut_at_the_sequence_limit():
    histogram = simulate(trace([0], [60], [50]), limits(), costs())
    assert histogram.decode.total == 3


@pytest.mark.parametrize("speed_up", [0, -1, float("nan")])
def test_a_speed_up_must_be_above_zero(speed_up):
    with pytest.raises(UsageError, match="speed-up"):
        simulate(trace([0], [4], [2]), limits(), costs(), speed_up=speed_up)


def test_a_trace_in_the_wrong_unit_is_refused_before_time_overflows():
    with pytest.raises(UsageError, match="spans"):
        simulate(trace([0, 1e12], [4, 4], [2, 2]), limits(), costs())


@pytest.mark.parametrize(
    "changes",
    [{"draft_len": 16}, {"draft_len": 2, "accepted_len": 3}, {"max_batch_size": 0}, {"kv_tokens": 1}],
)
def test_limits_that_no_service_can_run_under_are_refused(changes):
    with pytest.raises(ValueError, match="validation error"):
        limits(**changes)


def test_the_token_ceiling_is_what_batch_and_sequence_limits_reach():
    assert limits(max_batch_size=2, max_seq_len=513, max_num_tokens=8192).max_tokens_size == 1024


def test_the_decode_ceiling_shares_the_token_limit_among_drafts():
    assert limits(max_batch_size=32, max_num_tokens=32, draft_len=3).max_decode_size == 8
