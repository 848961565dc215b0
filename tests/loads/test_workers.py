"""Several processes with one start give one result, as a single process would."""

from array import array
from multiprocessing import Pipe

import pytest

from trtgate.errors import TrtgateError, UsageError
from trtgate.loads.base import Ask, LoadResult, Target
from trtgate.loads.flight import unsent
from trtgate.loads.instrument import Effort, read_instrument
from trtgate.loads.oracle import Script
from trtgate.loads.selfcheck import known_server
from trtgate.loads.workers import _receive, merge, run_workers, share_out


def asks(*after):
    return [Ask(0.0, (place,), 1, after=one) for place, one in enumerate(after)]


def test_every_ask_is_dealt_once_and_followers_stay_with_their_leader():
    shares = share_out(asks(None, None, 0, 1, 2), 2)
    assert [share.places for share in shares] == [(0, 2, 4), (1, 3)]
    assert [[ask.after for ask in share.asks] for share in shares] == [[None, 0, 1], [None, 0]]


def test_more_workers_than_asks_leave_none_idle():
    assert len(share_out(asks(None, None), 5)) == 2


def test_no_workers_are_refused():
    with pytest.raises(UsageError):
        share_out(asks(None), 0)


def part(places, duration, lag, busy):
    answers = tuple(
        unsent(local, Ask(float(place), (1,), 1), float(place)) for local, place in enumerate(places)
    )
    lag_s = array("f", lag)
    bar = read_instrument(answers, lag_s, [Effort(duration, busy, 0.0, 0.0, 0)])
    return LoadResult(answers, bar, 100.0, duration, lag_s)


def test_merging_keeps_every_answer_in_its_place_and_every_lag():
    merged = merge([part([0, 2], 2.0, [0.001], 1.0), part([1], 3.0, [0.003], 0.3)], [(0, 2), (1,)])
    assert [(answer.index, answer.scheduled_s) for answer in merged.answers] == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert merged.duration_s == 3.0
    assert merged.instrument.reads == 2
    assert merged.instrument.lag_p99_ms == pytest.approx(3.0)


def test_the_busiest_process_is_the_share_of_a_core_that_counts():
    assert merge([part([0], 2.0, [], 1.0), part([1], 2.0, [], 0.2)], [(0,), (1,)]).instrument.cpu == 0.5


def test_two_processes_answer_all_asks_on_one_clock():
    with known_server(Script(ttft_s=0.02, itl_s=0.002)) as known:
        result = run_workers(
            known.target, [Ask(0.01 * place, (1, 2), 5) for place in range(6)], 2, timeout_s=5.0
        )
    assert [answer.error for answer in result.answers] == [None] * 6
    assert [answer.scheduled_s for answer in result.answers] == pytest.approx(
        [0.01 * place for place in range(6)]
    )
    assert all(answer.sent_s >= answer.scheduled_s for answer in result.answers)


def test_an_impossible_target_is_the_error_of_the_caller():
    target = Target("http://127.0.0.1:1", "m", "/v1/chat/completions")
    with pytest.raises(UsageError, match="text, not token ids"):
        run_workers(target, asks(None), 1)


def test_a_worker_that_died_is_said_so():
    here, there = Pipe()
    there.close()
    with pytest.raises(TrtgateError, match="died"):
        _receive(here)
    here.close()
