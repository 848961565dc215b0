"""Metrics follow their formulas on answers whose times are known."""

from array import array
from dataclasses import replace

import numpy as np
import pytest

from trtgate.errors import InvalidMeasurementError, UsageError
from trtgate.loads.base import Ask, Instrument, LoadResult
from trtgate.loads.flight import Flight, unsent
from trtgate.loads.metrics import goodput, quantile, samples, split_result, spread, summary

INSTRUMENT = Instrument(0, 0, 0, 0, 0, "kernel", 0.1, 0.0, 1.0, 0.0, 0.0, 0, 0.0, 0.0, 1)


def answer(times, tokens=None, *, scheduled=0.0, sent=0.5, error=None):
    flight = Flight(0, Ask(scheduled, (1,), sum(tokens or [1] * len(times))), scheduled)
    flight.sent_s = sent
    flight.reply.status = 200
    stream = flight.reply.stream
    stream.chunk_s = array("d", times)
    stream.chunk_tokens = array("H", tokens or [1] * len(times))
    stream.counted = sum(stream.chunk_tokens)
    return flight.answer(error, 99.0)


def result(*answers):
    return LoadResult(tuple(replace(a, index=i) for i, a in enumerate(answers)), INSTRUMENT, 0.0, 10.0)


@pytest.mark.parametrize(("p", "expected"), [(0.0, 1), (0.5, 5), (0.95, 10), (0.9, 9), (0.91, 10), (1.0, 10)])
def test_a_quantile_is_the_order_statistic_ceil_p_n(p, expected):
    assert quantile(range(10, 0, -1), p) == expected


def test_p_times_n_is_not_rounded_up_by_floating_point():
    assert quantile(np.arange(1, 101), 0.07) == 7


@pytest.mark.parametrize("values", [[], [1.0, float("nan")]])
def test_a_quantile_of_nothing_or_nan_is_an_error(values):
    with pytest.raises(InvalidMeasurementError):
        quantile(values, 0.5)


def test_latency_counts_from_the_schedule_and_beside_it_from_the_send():
    got = samples(result(answer([1.0, 1.5, 2.5])))
    assert got["ttft_ms"].tolist() == [1000.0]
    assert got["ttft_from_send_ms"].tolist() == [500.0]
    assert got["e2e_ms"].tolist() == [2500.0]


def test_gaps_are_pooled_over_requests():
    got = samples(result(answer([1.0, 1.5, 2.5]), answer([0.0, 0.25])))
    assert sorted(got["itl_ms"]) == [250.0, 500.0, 1000.0]
    assert got["worst_gap_ms"].tolist() == [1000.0, 250.0]


def test_one_stall_shows_in_the_gaps_and_vanishes_in_the_means():
    got = samples(result(*(answer(np.cumsum([1.0, *[0.02] * 48, 0.2])) for _ in range(20))))
    assert quantile(got["itl_ms"], 0.99) == pytest.approx(200.0)
    assert quantile(got["itl_mean_ms"], 0.99) < 25.0


def test_time_per_token_leaves_out_the_tokens_of_the_first_chunk():
    got = samples(result(answer([1.0, 2.0, 3.0], [4, 4, 4])))
    assert got["tpot_ms"].tolist() == [250.0]
    assert got["itl_token_ms"].tolist() == [250.0] * 8


def test_failed_requests_are_in_no_metric():
    got = summary(result(answer([1.0, 2.0]), answer([0.502], error="reset")))
    assert (got.complete, got.failed, got.errors) == (1, 1, {"reset": 1})
    assert got.metrics["ttft_ms"].n == 1


def test_a_run_without_one_answer_has_a_summary_without_metrics():
    got = summary(result(unsent(0, Ask(0.0, (1,), 1), 0.0)))
    assert (got.asked, got.sent, got.complete, got.metrics) == (1, 0, 0, {})


def test_many_tokens_a_chunk_make_token_gaps_unreliable():
    assert not summary(result(answer([1.0, 2.0], [4, 4]))).token_gaps_reliable


def test_goodput_counts_failed_requests_as_misses():
    got = goodput(
        result(answer([1.0, 1.1]), answer([3.0, 3.1]), answer([1.0], error="reset")), {"ttft_ms": 2000}
    )
    assert (got.within, got.share) == (1, pytest.approx(1 / 3))
    assert got.low < got.share < got.high


def test_goodput_may_limit_the_worst_gap():
    got = goodput(result(answer([1.0, 1.1, 2.0]), answer([1.0, 1.1])), {"worst_gap_ms": 500})
    assert got.within == 1


def test_stalls_are_counted_by_gap_and_by_request():
    got = summary(result(answer([1.0, 1.5, 2.5, 2.6]), answer([1.0, 1.1])), stall_ms=400.0).stalls
    assert (got.limit_ms, got.gaps, got.requests) == (400.0, 2, 1)


def test_groups_are_summed_up_apart():
    parts = split_result(
        result(answer([1.0]), answer([1.0, 2.0]), answer([1.0])), lambda one: f"{one.tokens} tokens"
    )
    assert {name: summary(part).complete for name, part in parts.items()} == {"1 tokens": 2, "2 tokens": 1}


def test_a_limit_on_a_pooled_metric_is_refused():
    with pytest.raises(UsageError, match="itl_ms"):
        goodput(result(answer([1.0])), {"itl_ms": 1})


def test_a_spread_says_how_many_samples_it_has():
    got = spread([1.0, 2.0, 3.0])
    assert (got.n, got.mean, got.p50, got.max) == (3, 2.0, 2.0, 3.0)
