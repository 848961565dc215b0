"""The client reports what a known-answer server says that it sent."""

import sys

import numpy as np
import pytest

from trtgate.loads.base import Ask
from trtgate.loads.metrics import samples, summary
from trtgate.loads.oracle import Script
from trtgate.loads.run import run_load
from trtgate.loads.selfcheck import Level, Selfcheck, believed, known_server, selfcheck, truth_ms

FAST = {"ttft_s": 0.01, "itl_s": 0.002}


def run(script, *, path="/v1/completions", count=4, tokens=10):
    with known_server(script) as known:
        prompt = "hello" if "chat" in path else (1, 2)
        target = type(known.target)(known.target.url, "oracle", path)
        result = run_load(target, [Ask(0.0, prompt, tokens)] * count, timeout_s=5.0)
    return result, known.log


def test_every_request_is_matched_with_its_line_of_the_log():
    result, log = run(Script(**FAST))
    assert len(truth_ms(result.answers, log)["ttft_ms"]) == len(log) == 4
    assert len(truth_ms(result.answers, log)["itl_ms"]) == len(samples(result)["itl_ms"]) == 36


def test_no_token_is_seen_before_it_was_sent():
    result, log = run(Script(**FAST))
    sent, got = truth_ms(result.answers, log), samples(result)
    assert (got["ttft_from_send_ms"] > sent["ttft_ms"] - 0.5).all()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux stamps received bytes")
def test_the_times_come_from_the_kernel_where_it_gives_them():
    assert run(Script(**FAST))[0].instrument.lag_source == "kernel"


def test_a_role_chunk_of_a_chat_is_not_the_first_token():
    result, _ = run(Script(ttft_s=0.05, itl_s=0.002, role=True), path="/v1/chat/completions")
    assert samples(result)["ttft_from_send_ms"].min() >= 49.0


@pytest.mark.parametrize("tokens", [1, 7, 8])
def test_bundles_are_counted_in_tokens(tokens):
    result, _ = run(Script(**FAST, bundle=4), tokens=tokens)
    assert {answer.tokens for answer in result.answers} == {tokens}
    assert [sum(answer.chunk_tokens) for answer in result.answers] == [tokens] * 4
    assert summary(result).unequal == 0


def test_stalls_are_in_the_schedule():
    assert Script(ttft_s=1.0, itl_s=0.1, stall_every=2, stall_s=1.0).offsets(4) == pytest.approx(
        [1, 1.1, 2.1, 2.2]
    )


def test_steps_make_all_streams_send_together():
    assert Script(step_s=0.5).at(1.1, 0.2) == 1.5


def test_a_check_ends_in_a_rate_and_its_levels():
    got = selfcheck(limit_ms=1e6, streams=(2, 8))
    assert got.believed_tokens_per_s == 400.0
    assert [level.failed for level in got.levels] == [0, 0]


def level(rate, error, failed=0):
    return Level(
        tokens_per_s=rate,
        ttft_sent_ms=1.0,
        ttft_got_ms=1.0,
        itl_sent_ms=20.0,
        itl_got_ms=20.0 + error,
        late_ms=0.0,
        lag_ms=0.0,
        failed=failed,
    )


def test_the_client_is_believed_up_to_the_first_level_that_errs():
    assert believed([level(1, 0.1), level(2, 3.0), level(3, 0.1)], 1.0) == 1
    assert believed([level(1, 0.1), level(2, 0.1, failed=1)], 1.0) == 1
    assert believed([level(1, -2.0)], 1.0) == 0.0


def test_a_check_is_written_and_read_again():
    got = Selfcheck(limit_ms=1.0, levels=(level(1, 0.1),), believed_tokens_per_s=1.0)
    assert Selfcheck.parse(got.to_json(), "it") == got


def test_equal_answers_have_equal_numbers_of_gaps():
    result, _ = run(Script(**FAST))
    assert {len(answer.chunk_s) for answer in result.answers} == {10}
    assert all(np.all(np.diff(np.frombuffer(answer.chunk_s)) >= 0) for answer in result.answers)
