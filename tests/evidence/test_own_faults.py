"""What the load generator did to a run makes it invalid; what the runtime did does not."""

from array import array
from dataclasses import replace

from trtgate.evidence.ledger import Quantiles
from trtgate.evidence.measure import own_faults, tolerated
from trtgate.loads.base import Answer, Ask, LoadResult
from trtgate.loads.flight import Flight, unsent
from trtgate.loads.instrument import Effort, read_instrument
from trtgate.profile import Gate, MetricLimit

TTFT = MetricLimit(metric="ttft_ms", quantile="p50", margin=0.1, floor=2.0)
GATE = Gate(metrics=(TTFT,))


def answer(*, max_tokens: int = 2, late_s: float = 0.0) -> Answer:
    flight = Flight(0, Ask(0.0, (1,), max_tokens), 0.0)
    flight.sent_s, flight.reply.status = late_s, 200
    stream = flight.reply.stream
    stream.chunk_s, stream.chunk_tokens, stream.counted = array("d", [0.1, 0.12]), array("H", [1, 1]), 2
    return flight.answer(None, 0.13)


def result(*answers: Answer, busy_s: float = 0.1) -> LoadResult:
    bar = read_instrument(answers, array("f", [0.0]), [Effort(1.0, busy_s, 0.0, 0.0, 0)])
    return LoadResult(answers, bar, 0.0, 1.0)


def quantiles(p50: float) -> dict[str, Quantiles]:
    return {"ttft_ms": Quantiles(samples=10, p50=p50, p95=p50, p99=p50, maximum=p50)}


def test_a_quiet_run_has_no_fault() -> None:
    assert own_faults(result(answer()), GATE, quantiles(100.0)) == ()


def test_lateness_is_left_to_the_limit_of_the_profile() -> None:
    assert own_faults(result(answer(late_s=0.09)), GATE, quantiles(100.0)) == ()


def test_a_server_that_takes_nothing_is_no_fault_of_the_load_generator() -> None:
    refused = replace(unsent(0, Ask(0.0, (1,), 2), 0.0), error="refused")
    assert own_faults(result(refused), GATE, {}) == ()


def test_a_busy_client_is_a_fault() -> None:
    assert "core" in own_faults(result(answer(), busy_s=0.99), GATE, quantiles(100.0))[0]


def test_answers_of_another_length_are_told_once() -> None:
    assert own_faults(result(answer(max_tokens=3)), GATE, quantiles(100.0)) == (
        "1 of 1 answers have another length than asked for",
    )


def test_a_rate_beyond_the_self_check_is_a_fault() -> None:
    assert "believed" in own_faults(result(answer()), GATE, quantiles(100.0), 1.0)[0]


def test_the_floor_widens_what_is_tolerated_where_latencies_are_small() -> None:
    assert tolerated(GATE, quantiles(100.0)) == 0.1
    assert tolerated(GATE, quantiles(4.0)) == 0.5
    assert tolerated(GATE, {}) == 0.1


def test_the_strictest_critical_limit_decides() -> None:
    loose = MetricLimit(metric="ttft_ms", quantile="p95", margin=3.0)
    advisory = MetricLimit(metric="ttft_ms", quantile="p99", margin=0.01, floor=0.0, critical=False)
    assert tolerated(Gate(metrics=(TTFT, loose, advisory)), quantiles(100.0)) == 0.1
