"""One stream under the names of other tools gives the numbers that their sources define."""

from array import array

import pytest

from trtgate.loads.base import Ask, Instrument, LoadResult
from trtgate.loads.flight import Flight
from trtgate.loads.peers import peer_samples

BAR = Instrument(0, 0, 0, 0, 0, "kernel", 0.1, 0.0, 1.0, 0.0, 0.0, 0, 0.0, 0.0, 1)


@pytest.fixture
def got():
    """Three chunks of four tokens, 80 ms apart, the first 200 ms after the send."""
    flight = Flight(0, Ask(0.0, (1,), 12), 0.0)
    flight.sent_s, flight.reply.status = 0.0, 200
    stream = flight.reply.stream
    stream.chunk_s, stream.chunk_tokens, stream.counted = (
        array("d", [0.2, 0.28, 0.36]),
        array("H", [4, 4, 4]),
        12,
    )
    return peer_samples(LoadResult((flight.answer(None, 0.37),), BAR, 0.0, 1.0))


def test_vllm_bench_has_one_gap_a_chunk(got):
    assert got["vllm-bench"]["itl"] == pytest.approx([80, 80])


def test_inference_perf_has_gaps_of_zero_inside_a_chunk(got):
    assert got["inference-perf"]["inter_token_latency"] == pytest.approx([0, 0, 0, 80, 0, 0, 0, 80, 0, 0, 0])


def test_aiperf_averages_over_the_request(got):
    assert got["aiperf"]["inter_token_latency"] == pytest.approx([160 / 11])
    assert got["aiperf"]["inter_chunk_latency"] == pytest.approx([80, 80])


def test_guidellm_counts_the_first_token_into_its_time_per_token(got):
    assert got["guidellm"]["time_per_output_token_ms"] == pytest.approx([360 / 12])
    assert got["guidellm"]["inter_token_latency_ms"] == pytest.approx([160 / 11] * 11)


def test_tools_differ_in_where_a_request_ends(got):
    assert got["vllm-bench"]["e2el"] == pytest.approx([360])
    assert got["inference-perf"]["request_latency"] == pytest.approx([370])
