import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtgate.errors import TraceError
from trtgate.traces import ReadOptions, read_any
from trtgate.traces.prometheus import increase, resets_of

DATA = Path(__file__).parents[1] / "data" / "traces"
NAME = "vllm:iteration_tokens_total"


def answer(*results, kind="matrix"):
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": results}})


def series(edge, *values, name=f"{NAME}_bucket", **labels):
    points = [[60 * n, str(value)] for n, value in enumerate(values)]
    return {"metric": {"__name__": name, "le": edge, **labels}, "values": points}


def read(tmp_path, text, metric=None):
    path = tmp_path / "a.json"
    path.write_text(text)
    return read_any(path, options=ReadOptions(metric=metric))


def test_buckets_stay_ranges():
    ranges = read_any(DATA / "vllm_metrics.txt")
    assert ranges.low.tolist() == [0, 1, 8, 16]
    assert ranges.high.tolist() == [1, 8, 16, np.inf]
    assert (ranges.count.tolist(), ranges.total, len(ranges)) == ([40, 50, 0, 2], 1315, 92)


def test_samples_that_are_no_numbers_are_counted_and_spoil_nothing():
    ranges = read_any(
        DATA / "metrics_prometheus_odd.txt", options=ReadOptions(metric="e2e_request_latency_seconds")
    )
    assert (ranges.high.tolist(), ranges.count.tolist(), ranges.total) == ([0.3, np.inf], [0, 2], 3.48)
    assert ranges.sources[0].dropped == {"sample is not a number": 2, "sample of another metric": 1}


def test_a_missing_histogram_is_refused_with_those_that_are_there():
    with pytest.raises(TraceError, match="has no histogram") as caught:
        read_any(DATA / "metrics_prometheus_odd.txt")
    assert caught.value.hint == "choose one with `--metric`: e2e_request_latency_seconds"


def test_a_name_may_be_given_without_its_prefix():
    ranges = read_any(DATA / "vllm_metrics.txt", options=ReadOptions(metric="iteration_tokens_total_bucket"))
    assert ranges.metric == NAME


def test_a_range_counts_what_was_added_between_its_ends(tmp_path):
    ranges = read(tmp_path, answer(series("1", 10, 15), series("+Inf", 20, 40)))
    assert (ranges.count.tolist(), ranges.sources[0].span_s) == ([5, 15], 60)


def test_a_restart_of_the_server_is_noticed_and_noted():
    ranges = read_any(DATA / "prometheus_range.json")
    assert ranges.count.tolist() == [40, 40, 9]
    assert ranges.sources[0].notes == ("1 restart of the counters",)


def test_a_restart_seen_in_one_bucket_holds_for_all(tmp_path):
    ranges = read(tmp_path, answer(series("1", 0, 5), series("+Inf", 20, 8)))
    assert ranges.count.tolist() == [5, 3]


def test_engines_are_added_and_may_differ_in_their_edges(tmp_path):
    text = answer(
        series("1", 0, 5, engine="0"),
        series("+Inf", 0, 9, engine="0"),
        series("2", 0, 3, engine="1"),
        series("+Inf", 0, 4, engine="1"),
    )
    ranges = read(tmp_path, text)
    assert list(zip(ranges.low, ranges.high, ranges.count, strict=True)) == [
        (0, 1, 5),
        (0, 2, 3),
        (1, np.inf, 4),
        (2, np.inf, 1),
    ]


def test_an_expression_without_a_name_counts_as_it_is(tmp_path):
    results = [
        {"metric": {"le": edge}, "value": [1, value]} for edge, value in (("1", "4.2"), ("+Inf", "9.9"))
    ]
    assert read(tmp_path, answer(*results, kind="vector")).count.tolist() == [4, 6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"status": "error", "error": "timed out", "x": "resultType"}', "failed: timed out"),
        (answer(), "has no histogram"),
        (answer(series("x", 1, 2)), 'has a bucket with `le="x"`'),
        (answer(series("1", 0, 0)), "is empty"),
        (answer(7, {"metric": 3}, {"metric": {}, "values": [[1]]}), "has no histogram"),
        ('{"resultType', "has no keys|known format|not valid JSON"),
    ],
)
def test_an_answer_without_a_histogram_is_refused(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(TraceError, match=message):
        read_any(tmp_path / "a.json", format="prometheus")


def test_broken_lines_of_an_exposition_are_counted(tmp_path):
    text = (DATA / "vllm_metrics.txt").read_text() + '\nbroken{le="1\n{} 7\nname x y z\n'
    assert read(tmp_path, text).sources[0].dropped["sample not readable"] == 3


@given(st.lists(st.integers(0, 9), min_size=2, max_size=9))
def test_a_counter_that_only_grows_adds_up_however_it_is_cut(steps):
    points = [(float(n), float(value)) for n, value in enumerate(np.cumsum(steps))]
    assert resets_of(points) == set()
    assert increase(points, set()) == points[-1][1] - points[0][1]


@pytest.mark.parametrize(
    "point", [[float("inf"), "5"], [float("nan"), "5"], [10**400, "5"], "ab", [1, 2, 3], None]
)
def test_a_point_that_is_no_time_and_value_is_counted(tmp_path, point):
    odd = series("1", 0, 5)
    odd["values"].append(point)
    ranges = read(tmp_path, answer(odd, series("+Inf", 0, 9)))
    assert (ranges.count.tolist(), ranges.sources[0].dropped) == ([5, 4], {"sample not readable": 1})


def test_a_count_beyond_all_reason_is_no_number(tmp_path):
    ranges = read(tmp_path, answer(series("1", 0, 5), series("2", 0, 1e300), series("+Inf", 0, 9)))
    assert ranges.sources[0].dropped == {"sample is not a number": 1}


@pytest.mark.parametrize("edge", ["NaN", "many"])
def test_a_bucket_whose_edge_is_no_number_is_refused(tmp_path, edge):
    path = tmp_path / "metrics.txt"
    lines = [f'm_bucket{{le="{edge}"}} 3', 'm_bucket{le="+Inf"} 4', "m_sum 9", "m_count 4"]
    path.write_text("# TYPE m histogram\n" + "\n".join(lines) + "\n")
    with pytest.raises(TraceError, match=f'has a bucket with `le="{edge}"`'):
        read_any(path, format="prometheus", options=ReadOptions(metric="m"))
