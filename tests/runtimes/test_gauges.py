"""Prometheus pages: renamed series, samples that are no number, several engines."""

import pytest

from tests.runtimes.fakes import serving
from trtgate.runtimes.gauges import Gauges, parse_gauges, read_gauges
from trtgate.runtimes.ready import new_session

PAGE = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} NaN
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.2
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.4
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.9
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 200.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 50.0
vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="m"} 7.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 7.0
other +Inf
half a line {
"""


def test_engines_are_added_and_fractions_averaged():
    seen = parse_gauges(PAGE)
    assert seen.running == 5.0
    assert seen.kv_used_fraction == pytest.approx(0.3)
    assert seen.steps == 7.0


def test_newer_name_wins_and_the_older_one_still_serves():
    assert parse_gauges("vllm:gpu_cache_usage_perc 0.9\n").kv_used_fraction == 0.9
    assert (
        parse_gauges("vllm:gpu_cache_usage_perc 0.9\nvllm:kv_cache_usage_perc 0.1\n").kv_used_fraction == 0.1
    )


def test_what_is_no_number_is_left_out_and_counted_while_the_rest_stays():
    seen = parse_gauges(PAGE)
    assert (seen.waiting, seen.skipped) == (None, 3)


def test_missing_series_are_unmeasured():
    assert parse_gauges("") == Gauges()
    assert parse_gauges("").reuse_share is None


@pytest.mark.parametrize("prefix", ["trtllm_", ""])
def test_reuse_is_a_share_of_tokens_or_of_blocks(prefix):
    assert parse_gauges(PAGE).reuse_share == 0.25
    page = f'{prefix}kv_cache_reused_blocks_total{{model_name="undefined"}} 30\n'
    page += f"{prefix}kv_cache_missed_blocks_total 10\n"
    assert parse_gauges(page).reuse_share == 0.75


def test_server_with_json_statistics_only_has_no_gauges(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    with serving({}, tmp_path) as server, new_session() as session:
        assert read_gauges(session, server.url) is None


def test_page_of_a_server_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    with serving({"exposition": PAGE}, tmp_path) as server, new_session() as session:
        seen = read_gauges(session, server.url)
    assert seen is not None
    assert seen.running == 5.0
