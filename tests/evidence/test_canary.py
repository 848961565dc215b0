import numpy as np
import pytest

from tests.candidates import small_profile
from trtgate.errors import UsageError
from trtgate.evidence.canary import cut_window
from trtgate.traces.base import Trace


def trace(count: int = 200, gap_s: float = 0.1) -> Trace:
    return Trace(
        arrival_s=np.arange(count) * gap_s,
        prompt_tokens=np.arange(count) % 7 + 1,
        output_tokens=np.arange(count) % 5 + 1,
        sources=(),
    )


def test_a_window_is_the_same_each_time_and_another_for_each_pair() -> None:
    profile = small_profile()
    first, again, second = (cut_window(trace(), profile, index) for index in (1, 1, 2))
    assert (first.asks, first.trace_sha256) == (again.asks, again.trace_sha256)
    assert first.segment_s != second.segment_s


def test_prompts_and_lengths_are_those_of_the_trace() -> None:
    window = cut_window(trace(), small_profile(), 1)
    assert len(window.asks) == 10
    assert {len(ask.prompt) for ask in window.asks} <= set(range(1, 8))
    assert window.asks[0].at_s == 0.0


def test_warm_requests_share_no_prompt_with_the_window() -> None:
    profile = small_profile(canary={"warm_requests": 50})
    window = cut_window(trace(), profile, 1)
    long = {ask.prompt for ask in window.asks if len(ask.prompt) > 3}
    assert len(window.warm) == 50
    assert not long & {ask.prompt for ask in window.warm}


def test_an_empty_window_is_refused_with_what_to_change() -> None:
    with pytest.raises(UsageError, match="only 1 request lies in a window of 1 s"):
        cut_window(trace(count=3, gap_s=50.0), small_profile(canary={"seed": 3}), 1)


def test_log_probabilities_are_asked_for_where_answers_are_compared_with_a_tolerance() -> None:
    tolerant = small_profile(warmup={"logprob_tolerance": 0.5})
    assert {ask.logprobs for ask in cut_window(trace(), tolerant, 1).asks} == {1}
    assert {ask.logprobs for ask in cut_window(trace(), small_profile(), 1).asks} == {None}
