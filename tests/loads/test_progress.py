"""Progress is told once a second, with medians of what ended since."""

from array import array

from trtgate.loads.base import Ask
from trtgate.loads.flight import Flight, unsent
from trtgate.loads.progress import Reporter


def answer(first, error=None):
    flight = Flight(0, Ask(0.0, (1,), 3), 0.0)
    flight.sent_s, flight.reply.status = 0.0, 200
    stream = flight.reply.stream
    stream.chunk_s, stream.chunk_tokens, stream.counted = (
        array("d", [first, first + 0.1]),
        array("H", [1, 2]),
        3,
    )
    return flight.answer(error, first + 1)


def test_nothing_is_told_before_a_second_has_passed():
    told = []
    Reporter(3).report(told.append, 0.9, 1)
    assert told == []


def test_counts_add_up_and_medians_are_of_the_last_second():
    told, reporter = [], Reporter(9)
    for one in (
        answer(0.1),
        answer(0.3),
        answer(0.2),
        answer(0.1, "reset"),
        unsent(1, Ask(0.0, (1,), 1), 0.0),
    ):
        reporter.note(one)
    reporter.report(told.append, 1.0, 2)
    reporter.note(answer(0.5))
    reporter.report(told.append, 2.1, 0)
    first, second = told
    assert (first.sent, first.running, first.complete, first.failed, first.tokens) == (6, 2, 3, 2, 9)
    assert (first.ttft_ms, second.ttft_ms) == (200.0, 500.0)
    assert round(first.tpot_ms, 6) == 50.0
    assert second.complete == 4
