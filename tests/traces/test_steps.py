import json
from pathlib import Path

import numpy as np
import pytest

from trtgate.errors import TraceError
from trtgate.traces import ReadOptions, read_any, stream_steps
from trtgate.traces.files import LONGEST_LINE_BYTES

DATA = Path(__file__).parents[1] / "data" / "traces"
OLD = "[01/20/2026-09:14:02] [TRT-LLM] [I] "
RANKED = "[01/20/2026-09:14:02] [TRT-LLM] [RANK 0] [I] "
NEW = "[08/20/2026-09:14:03] [TRT-LLM] [I] [_torch][RANK 0] "


def line(
    n=1,
    *,
    scheduled=9,
    ctx=0,
    ctx_tokens=0,
    gen=16,
    rank=0,
    time="host_step_time = 6.5ms",
    prefix=RANKED,
    more="",
):
    known = "" if scheduled is None else f"num_scheduled_requests: {scheduled}, "
    states = f"{{'num_ctx_requests': {ctx}, 'num_ctx_tokens': {ctx_tokens}, 'num_generation_tokens': {gen}}}"
    return (
        f"{prefix}iter = {n}, global_rank = {rank}, rank = {rank}, currank_total_requests = 0/9, {time}, "
        f"timestamp = 2026-01-20 09:14:02, {more}{known}states = {states}\n"
    )


def read(tmp_path, text, **options):
    path = tmp_path / "a.log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_any(path, options=ReadOptions(**options))


@pytest.mark.parametrize(
    ("generation", "decode", "size", "padded", "step_ms"),
    [
        (1, [True], [8], [0], [6.1]),
        (2, [False], [489], [496], [21.1]),
        (3, [False, True], [61, 5], [0, 8], [31.2, 5.02]),
        (4, [True, True], [9, 9], [12, 12], [6.4, 6.5]),
    ],
)
def test_all_four_layouts_are_read(generation, decode, size, padded, step_ms):
    steps = read_any(DATA / f"iterlog_trtllm_g{generation}.log")
    assert (steps.decode.tolist(), steps.size.tolist()) == (decode, size)
    assert steps.padded.tolist() == padded
    assert steps.step_ms.tolist() == pytest.approx(step_ms, rel=1e-6)


def test_real_requests_are_told_from_padding():
    steps = read_any(DATA / "iterlog_trtllm_g4.log")
    assert (steps.decode_size.tolist(), steps.padded.tolist()) == ([9, 9], [12, 12])


def test_a_log_without_the_count_of_requests_gives_upper_bounds_and_says_so():
    (source,) = read_any(DATA / "iterlog_trtllm_g1.log").sources
    assert source.notes == ("1 iteration does not tell requests from padding: sizes are upper bounds",)


@pytest.mark.parametrize("prefix", [OLD, RANKED, NEW, "", "worker-0 | \x1b[32m", "[TensorRT-LLM][INFO] "])
def test_what_stands_before_the_iteration_does_not_matter(tmp_path, prefix):
    assert read(tmp_path, line(prefix=prefix)).size.tolist() == [9]


@pytest.mark.parametrize(
    ("time", "step_ms"),
    [
        ("elapsed_time = 0.0061s", 6.1),
        ("host_step_time = 6.1ms", 6.1),
        ("host_step_time = 5.210", 5.21),
        ("host_step_time = 2s", 2000),
        ("host_step_time = N/A", np.nan),
        ("other = 3", np.nan),
    ],
)
def test_the_unit_of_a_time_is_its_suffix_and_not_available_is_unknown(tmp_path, time, step_ms):
    assert read(tmp_path, line(time=time)).step_ms.tolist() == pytest.approx([step_ms], nan_ok=True)


def test_device_times_belong_to_another_iteration_and_are_left(tmp_path):
    steps = read(tmp_path, line(time="prev_device_step_time = 99.0ms"))
    assert np.isnan(steps.step_ms[0])


@pytest.mark.parametrize("quote", ["'", '"'])
@pytest.mark.parametrize("sign", [" = ", "=", ": ", ":"])
def test_keys_come_in_any_order_with_any_sign(tmp_path, sign, quote):
    keys = {"num_generation_tokens": 16, "num_ctx_requests": 0, "new_key": 7, "num_ctx_tokens": 0}
    states = ", ".join(f"{quote}{key}{quote}{sign}{value}" for key, value in keys.items())
    text = f"iter = 4, global_rank = 0, {states}, num_active = 14, num_scheduled_requests{sign}9\n"
    steps = read(tmp_path, text)
    assert (steps.size.tolist(), steps.padded.tolist()) == ([9], [16])


def test_a_mixed_step_counts_tokens_and_not_padding(tmp_path):
    steps = read(tmp_path, line(scheduled=10, ctx=1, ctx_tokens=480, gen=16))
    assert (steps.tokens_size.tolist(), steps.padded.tolist()) == ([489], [496])


def test_drafts_are_tokens_but_no_requests(tmp_path):
    text = line(scheduled=3, gen=16) + line(2, scheduled=4, ctx=1, ctx_tokens=100, gen=12)
    steps = read(tmp_path, text, draft_len=3)
    assert (steps.decode_size.tolist(), steps.tokens_size.tolist()) == ([3], [112])
    assert steps.padded.tolist() == [4, 0]


def test_dummies_of_attention_parallelism_are_no_tokens(tmp_path):
    text = line(scheduled=2, ctx=1, ctx_tokens=101, gen=1, more="adp_dummy_ctx_tokens = 1, ")
    assert read(tmp_path, text).tokens_size.tolist() == [101]


def test_idle_iterations_are_dropped_and_counted(tmp_path):
    steps = read(tmp_path, line() + line(2, scheduled=0, gen=0) + line(3, scheduled=0, gen=1))
    assert (len(steps), steps.sources[0].dropped) == (1, {"iteration without work": 2})


def test_ranks_count_once_with_the_largest_size(tmp_path):
    text = line(1, scheduled=4, gen=8) + line(1, scheduled=7, gen=8, rank=1)
    text += line(2, scheduled=5, gen=8) + line(2, scheduled=3, ctx=1, ctx_tokens=50, gen=2, rank=1)
    (source,) = (steps := read(tmp_path, text)).sources
    assert (steps.decode.tolist(), steps.size.tolist()) == ([True, False], [7, 52])
    assert source.dropped == {"same iteration on another rank": 2}
    assert source.notes == ("2 ranks; of each iteration the largest size was taken",)


def test_a_restart_in_the_log_does_not_merge_iterations(tmp_path):
    text = "".join(line(n, rank=rank) for n in (1, 2, 1, 2) for rank in (0, 1))
    assert len(read(tmp_path, text)) == 4


def test_one_rank_is_never_merged_with_itself(tmp_path):
    assert len(read(tmp_path, line(1) + line(1) + line(1))) == 3


def test_other_lines_are_passed_over_and_counted(tmp_path):
    text = "[TensorRT-LLM][INFO] hello\n" + line() + "iter = x, global_rank = 0\niter = 5\n" + line(2)
    (source,) = read(tmp_path, text).sources
    assert (source.read, source.kept, source.notes) == (2, 2, ("3 other lines",))


def test_a_line_that_was_cut_off_is_counted_and_a_share_of_them_noted(tmp_path):
    (source,) = read(tmp_path, line() * 3 + line()[:-30]).sources
    assert source.dropped == {"iteration not readable": 1}
    assert source.notes == ("only 75.0% of the iterations were readable",)


@pytest.mark.parametrize("value", ["-3", "10000000000", "9" * 400, "N/A", "nan", ""])
def test_absurd_counts_cost_their_line_only(tmp_path, value):
    steps = read(tmp_path, line() + line(2, gen=value))
    assert (len(steps), steps.sources[0].read) == (1, 2)


def test_the_span_is_that_of_the_timestamps(tmp_path):
    later = line(2).replace("09:14:02, num", "10:14:03, num")
    (source,) = read(tmp_path, line() + later).sources
    assert (source.span_s, source.time_unit) == (3601, "timestamp")


def test_a_log_without_iterations_says_what_to_switch_on(tmp_path):
    with pytest.raises(TraceError, match="holds no iteration") as caught:
        read(tmp_path, OLD + "starting\n")
    assert "`print_iter_log: true`" in caught.value.hint


def test_pieces_of_a_large_log_join_without_loss(tmp_path):
    text = "".join(line(n, scheduled=1 + n % 50, gen=64) for n in range(60_000))
    steps = read(tmp_path, text)
    assert len(text) > 1 << 23
    assert steps.iteration.tolist() == list(range(60_000))
    assert np.bincount(steps.size).tolist() == [0] + [1200] * 50


def test_vllm_lines_are_read():
    steps = read_any(DATA / "iterlog_vllm.log")
    assert (steps.decode_size.tolist(), steps.tokens_size.tolist()) == ([20], [719])
    assert steps.step_ms.tolist() == pytest.approx([10.99, 31.4], rel=1e-6)
    assert (steps.padded.tolist(), steps.sources[0].span_s) == ([0, 0], 1)


def test_vllm_engines_count_on_their_own(tmp_path):
    one = "INFO 12-22 21:44:40 [core.py:349] Iteration(5): 0 context requests, 0 context tokens, "
    two = "3 generation requests, 3 generation tokens, iteration elapsed time: 8.9 ms, CPU KV cache usage: 0.0%\n"
    steps = read(tmp_path, f"(EngineCore_DP2 pid=42) {one}{two}Engine 003: {one}{two}{one}{two}")
    assert (steps.rank.tolist(), steps.size.tolist()) == ([2, 3, 0], [3, 3, 3])


def test_rows_of_metrics_come_as_arrays_and_lines():
    steps = read_any(DATA / "trtllm_metrics_rows.jsonl")
    assert (steps.decode.tolist(), steps.size.tolist()) == ([False, True, True], [102, 3, 2])
    assert steps.sources[0].dropped == {"iteration without work": 1}
    assert read_any(DATA / "metrics_trtllm_json_pytorch.json").decode_size.tolist() == [6]


def test_a_latency_that_spans_two_loops_is_no_step_time():
    assert read_any(DATA / "trtllm_metrics_rows.jsonl").step_ms.tolist() == pytest.approx(
        [9, np.nan, 4.5], nan_ok=True
    )


@pytest.mark.parametrize("text", ["[]", "[]\n[]\n", " [ ] "])
def test_an_empty_answer_means_no_data_yet(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(TraceError, match="holds no iteration yet") as caught:
        read_any(tmp_path / "a.json", format="trtllm-metrics")
    assert "enable_iter_perf_stats" in caught.value.hint


def stats(n, batch):
    keys = ("numScheduledRequests", "numContextRequests", "numGenRequests", "numCtxTokens")
    return {"iter": n, "inflightBatchingStats": dict(zip(keys, batch, strict=True))}


def test_a_broken_row_of_metrics_costs_itself_only(tmp_path):
    rows = [json.dumps(stats(n, (3, 0, 3, 0))) for n in range(4)]
    rows[1] = rows[1].replace(": 3", ": oops", 1)
    steps = read(tmp_path, "\n".join(rows) + '\n{"iter": 9, "inflightBatching')
    assert steps.iteration.tolist() == [0, 2, 3]
    assert steps.sources[0].dropped == {"iteration not readable": 1, "last line cut off": 1}


def test_rows_that_a_back_end_fills_with_less_are_dropped_and_counted(tmp_path):
    rows = [stats(1, (3, 0, 3, 0)), {"iter": 2, "inflightBatchingStats": {}}, {"iter": 3}, 7]
    steps = read(tmp_path, json.dumps(rows))
    assert (len(steps), steps.sources[0].dropped) == (1, {"iteration not readable": 3})


def test_ranks_of_metrics_are_merged(tmp_path):
    rows = [stats(1, (3, 0, 3, 0)) | {"attentionDpRank": 0}, stats(1, (5, 0, 5, 0)) | {"attentionDpRank": 1}]
    assert read(tmp_path, json.dumps(rows, indent=1)).decode_size.tolist() == [5]


def test_metrics_span_many_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("trtgate.traces.files.PIECE_BYTES", 64)
    rows = [stats(n, (3, 0, 3, 0)) for n in range(50)]
    assert len(read(tmp_path, json.dumps(rows))) == 50


def joined(parts):
    parts = list(parts)
    return {
        name: np.concatenate([getattr(part, name) for part in parts]).tolist() for name in ("decode", "size")
    }


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr("trtgate.traces.files.PIECE_BYTES", 512)
    monkeypatch.setattr("trtgate.traces.stepstream.PART_ROWS", 16)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_parts_of_a_log_are_the_whole_and_the_last_bears_the_source(tmp_path, monkeypatch, ranks):
    rng = np.random.default_rng(ranks)
    rows = [
        line(n, scheduled=rng.integers(1, 60), gen=64, rank=rank) for n in range(90) for rank in range(ranks)
    ]
    (tmp_path / "a.log").write_text("".join(rows * 2))
    whole = read_any(tmp_path / "a.log")
    monkeypatch.setattr("trtgate.traces.files.PIECE_BYTES", 512)
    monkeypatch.setattr("trtgate.traces.stepstream.PART_ROWS", 3)
    parts = list(stream_steps(tmp_path / "a.log"))
    assert (len(whole), len(parts) > 9) == (180, True)
    assert joined(parts) == {"decode": whole.decode.tolist(), "size": whole.size.tolist()}
    assert [part.sources for part in parts[:-1]] == [()] * (len(parts) - 1)
    assert parts[-1].sources == whole.sources


@pytest.mark.usefixtures("small_pieces")
def test_ranks_that_log_some_lines_apart_are_still_merged(tmp_path):
    rows = [line(n, rank=0, scheduled=2) for n in range(5)]
    for n in range(5, 100):
        rows += [line(n, rank=0, scheduled=2), line(n - 5, rank=1, scheduled=3)]
    steps = read(tmp_path, "".join(rows))
    assert sorted(steps.size.tolist()) == [2] * 5 + [3] * 95


@pytest.mark.usefixtures("small_pieces")
def test_a_rank_that_falls_silent_does_not_hold_back_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr("trtgate.traces.stepstream.MOST_HELD_ROWS", 20)
    (tmp_path / "a.log").write_text(line(0, rank=1) + "".join(line(n) for n in range(100)))
    assert max(len(part) for part in stream_steps(tmp_path / "a.log")) < 40


def test_only_logs_of_iterations_come_in_parts():
    with pytest.raises(TraceError, match="is no log of iterations, but `azure`"):
        stream_steps(DATA / "azure_2023_style.csv")


@pytest.mark.parametrize("new", ["cached requests", "context requests"])
def test_a_vllm_line_with_other_words_is_not_guessed_at(tmp_path, new):
    text = (DATA / "iterlog_vllm.log").read_text()
    steps = read(tmp_path, text + text.replace("context requests", new).replace("515", "517"))
    assert len(steps) == (2 if new == "cached requests" else 4)


def test_a_vllm_log_without_iterations_says_what_to_switch_on(tmp_path):
    with pytest.raises(TraceError, match="holds no iteration") as caught:
        read(
            tmp_path,
            "(APIServer pid=7) INFO 12-22 21:44:40 [api_server.py:1] vLLM API server version 0.32.0\n",
        )
    assert "--enable-logging-iteration-details" in caught.value.hint


def test_a_value_of_metrics_that_never_ends_is_refused(tmp_path):
    with pytest.raises(TraceError, match="longer than 16 MiB"):
        read(tmp_path, b'[{"iter": 1, "inflightBatchingStats": "' + b"x" * (LONGEST_LINE_BYTES + 1))
