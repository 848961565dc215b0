"""A run that measured its own client is invalid, with the reason, whatever its latencies."""

from array import array
from dataclasses import replace

import pytest

from trtgate.loads.base import Ask, Instrument, LoadResult
from trtgate.loads.flight import Flight, unsent
from trtgate.loads.instrument import Effort, read_instrument
from trtgate.loads.validity import valid

GOOD = Instrument(
    late_p50_ms=0.1,
    late_p99_ms=0.5,
    late_max_ms=1.0,
    lag_p50_ms=0.1,
    lag_p99_ms=0.5,
    lag_source="kernel",
    cpu=0.2,
    starved=0.0,
    delivered=1.0,
    merged=0.0,
    blind=0.0,
    queued=0,
    clock_step_ms=0.0,
    timer_ms=0.0,
    reads=100,
)


def answer(*, scheduled=0.0, sent=0.0, first=0.1, max_tokens=2, queued=False):
    flight = Flight(0, Ask(scheduled, (1,), max_tokens), scheduled)
    flight.sent_s, flight.queued, flight.reply.status = sent, queued, 200
    stream = flight.reply.stream
    stream.chunk_s, stream.chunk_tokens, stream.counted = (
        array("d", [first, first + 0.02]),
        array("H", [1, 1]),
        2,
    )
    return flight.answer(None, first + 0.03)


def result(*answers, **changes):
    return LoadResult(answers or (answer(),), replace(GOOD, **changes), 0.0, 1.0)


def test_a_quiet_run_is_valid():
    assert valid(result(), 0.1) == ()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"late_p99_ms": 20.0}, "late"),
        ({"delivered": 0.9}, "asked for"),
        ({"cpu": 0.99}, "core"),
        ({"clock_step_ms": 5.0}, "clock"),
        ({"blind": 0.01, "lag_p99_ms": 9.0}, "too late"),
    ],
)
def test_each_fault_of_the_instrument_is_a_reason(change, word):
    (reason,) = valid(result(**change), 0.1)
    assert word in reason


def test_chunks_read_together_but_soon_are_no_fault():
    assert valid(result(blind=0.01, lag_p99_ms=0.9), 0.1) == ()


def test_lateness_is_held_against_the_margin():
    assert valid(result(late_p99_ms=9.0), 0.1) == ()
    assert valid(result(late_p99_ms=9.0), 0.05) != ()


def test_a_rate_above_what_is_believed_is_a_reason():
    assert "believed" in valid(result(), 0.1, believed_tokens_per_s=1.0)[0]


def test_no_completed_request_is_a_reason():
    assert "0 of 1 requests completed" in valid(result(unsent(0, Ask(0.0, (1,), 2), 0.0)), 0.1)


def test_answers_of_another_length_are_a_reason():
    assert "another length" in valid(result(answer(max_tokens=3)), 0.1)[0]


def measured(*answers, lag=(), **effort):
    parts = {"duration_s": 10.0, "busy_s": 1.0, "starved_s": 0.0, "clock_step_s": 0.0, "blind": 0} | effort
    return read_instrument(answers, array("f", lag), [Effort(**parts)])


def test_lateness_is_of_asks_that_did_not_queue():
    bar = measured(answer(sent=0.002), answer(sent=9.0, queued=True))
    assert bar.late_max_ms == pytest.approx(2.0)
    assert bar.queued == 1


def test_a_client_that_falls_behind_delivers_less_than_asked():
    late = [answer(scheduled=t, sent=2 * t, first=2 * t + 1) for t in range(11)]
    assert measured(*late).delivered == pytest.approx(0.5)


def test_asks_never_sent_were_not_delivered():
    assert measured(answer(), unsent(1, Ask(0.0, (1,), 2), 0.0)).delivered == 0.5


def test_chunks_of_one_time_are_merged():
    one = replace(answer(), chunk_s=array("d", [1.0, 1.0]))
    assert measured(one, answer()).merged == 0.25


def test_lag_is_none_where_the_kernel_gave_no_time():
    assert measured(answer()).lag_source == "none"
    assert measured(answer(), lag=[0.001] * 3).lag_p99_ms == pytest.approx(1.0)
