from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from trtgate.errors import TraceError
from trtgate.traces import ColumnNames, ReadOptions, Trace, TraceSource, read_trace
from trtgate.traces.base import BLOCK_ROWS
from trtgate.traces.mooncake import spread

DATA = Path(__file__).parents[1] / "data" / "traces"
WEKA = ColumnNames("t", "in", "out")


def write(path, text):
    path.write_text(text)
    return path


def binned(seconds):
    source = TraceSource(
        name="a", sha256="", format="mooncake", read=len(seconds), kept=len(seconds), span_s=0, time_unit="ms"
    )
    ones = np.ones(len(seconds), np.int64)
    return Trace(np.array(seconds, float), ones, ones.copy(), (source,))


@pytest.mark.parametrize(("name", "read", "kept"), [("burstgpt_6col.csv", 7, 4), ("burstgpt_8col.csv", 5, 3)])
def test_failed_requests_of_burstgpt_are_dropped_in_both_layouts(name, read, kept):
    source = read_trace(DATA / name).sources[0]
    assert (source.format, source.read, source.kept, source.time_unit) == ("burstgpt", read, kept, "s")
    assert source.dropped["no output tokens"] == 1
    assert source.dropped["no prompt and no output tokens"] == 1


def test_burstgpt_columns_are_found_by_name():
    trace = read_trace(DATA / "burstgpt_8col.csv")
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([230, 1890, 402], [95, 12, 130])


def test_mooncake_counts_milliseconds():
    trace = read_trace(DATA / "mooncake_ms.jsonl")
    assert (trace.arrival_s.tolist(), trace.sources[0].time_unit) == ([0, 9.02, 24.011], "ms")
    assert trace.sources[0].notes == ()


def test_mooncake_times_with_fractions_are_seconds_and_that_is_said():
    source = read_trace(DATA / "mooncake_like_in_seconds.jsonl").sources[0]
    assert (source.time_unit, source.span_s) == ("s", 0.4)
    assert source.notes == ("times have fractions, so they were read as seconds",)


def test_the_unit_that_the_user_states_wins():
    options = ReadOptions(time_unit="ms")
    assert read_trace(DATA / "mooncake_like_in_seconds.jsonl", options=options).span_s == 0.0004


def test_blocks_that_do_not_fit_the_length_are_counted(tmp_path):
    line = '{"timestamp": 0, "input_length": 20, "output_length": 8, "hash_ids": [0, 1]}\n'
    source = read_trace(write(tmp_path / "a.jsonl", line * 3)).sources[0]
    assert source.notes == ("3 rows have `hash_ids` that do not fit the length",)
    mixed = line * 3 + '{"timestamp": 0, "input_length": "20", "output_length": 8, "hash_ids": [0]}\n'
    assert read_trace(write(tmp_path / "b.jsonl", mixed)).sources[0].notes == source.notes


def test_arrivals_in_bins_are_spread_evenly_and_that_is_said():
    trace = spread(binned([0, 0, 0, 3, 3, 3, 6, 6, 6]))
    assert trace.arrival_s.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert trace.sources[0].notes == ("arrivals were in 3 s bins; spread evenly inside each",)
    assert trace.sources[0].span_s == 8


def test_a_long_pause_is_not_filled_by_spreading():
    assert spread(binned([0, 0, 3, 3, 6, 6, 60, 60])).arrival_s.tolist() == [0, 1.5, 3, 4.5, 6, 7.5, 60, 61.5]


def test_equal_times_of_a_few_are_left_alone():
    trace = binned([0, 0, 1, 2, 3])
    assert spread(trace) is trace


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60))
def test_spreading_moves_no_request_back_nor_into_the_next_bin(bins):
    seconds = np.sort(np.array(bins)) * 3.0
    before = seconds - seconds[0]
    after = spread(binned(before)).arrival_s
    times = np.append(np.unique(before), np.inf)
    assert np.all((after >= before) & (after < times[np.searchsorted(times, before) + 1]))


def test_a_dirty_file_of_lines_loses_each_line_for_its_own_reason():
    trace = read_trace(DATA / "dirty_truncated.jsonl")
    assert trace.prompt_tokens.tolist() == [655, 77]
    assert trace.sources[0].dropped == {
        "last line cut off": 1,
        "no output tokens": 1,
        "no prompt tokens": 1,
        "time missing": 1,
    }


def test_half_of_the_rows_without_time_never_arrive_at_zero(tmp_path):
    rest = '"input_length": 5, "output_length": 5, "hash_ids": [1]}\n'
    text = '{"timestamp": 500, ' + rest + '{"timestamp": 900, ' + rest + ("{" + rest) * 2
    trace = read_trace(write(tmp_path / "a.jsonl", text))
    assert trace.arrival_s.tolist() == [0, 0.4]
    assert trace.sources[0].dropped == {"time missing": 2}


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "1e999", "-5", "1" * 30, '"x"', "[]", "{}", "true", "null"]
)
def test_a_length_that_is_no_count_costs_its_line_only(tmp_path, value):
    good = '{"arrival_s": 1, "prompt_tokens": 5, "output_tokens": 6}\n'
    bad = f'{{"arrival_s": 1, "prompt_tokens": {value}, "output_tokens": 6}}\n'
    source = read_trace(write(tmp_path / "a.jsonl", good + bad)).sources[0]
    assert (source.read, source.kept) == (2, 1)


def test_lines_that_are_no_objects_are_counted(tmp_path):
    good = '{"arrival_s": 1, "prompt_tokens": 5, "output_tokens": 6}\n'
    text = good + "[1]\n\n" + "[" * 100_000 + "\nnonsense\n" + good
    source = read_trace(write(tmp_path / "a.jsonl", text)).sources[0]
    assert source.kept == 2
    assert source.dropped == {"row of another shape": 1, "line not readable": 2}


def test_bailian_counts_seconds_in_blocks_of_sixteen():
    trace = read_trace(DATA / "qwen_bailian_style.jsonl")
    assert (trace.arrival_s.tolist(), trace.sources[0].format) == ([0, 0.114, 61.114], "bailian")
    assert trace.sources[0].notes == ()


def test_aibrix_lines_hold_several_requests(tmp_path):
    pair = '{"Prompt Length": 5, "Output Length": 6}, {"prompt_length": 7, "output_length": 8}'
    text = f'{{"timestamp": 10, "requests": [{pair}]}}\n{{"timestamp": 30, "requests": [{pair}, 3]}}\n'
    trace = read_trace(write(tmp_path / "a.jsonl", text + '{"timestamp": 1, "requests": 4}'))
    assert trace.arrival_s.tolist() == [0, 0, 0.02, 0.02]
    assert trace.prompt_tokens.tolist() == [5, 7, 5, 7]
    assert trace.sources[0].dropped == {"row of another shape": 2}


def test_vidur_and_azure_tell_the_same_hour_alike():
    vidur, azure = read_trace(DATA / "vidur.csv"), read_trace(DATA / "azure-conversation.csv")
    assert vidur.arrival_s.tolist() == azure.arrival_s[:10].tolist()
    assert vidur.prompt_tokens.tolist() == azure.prompt_tokens[:10].tolist()


def test_splitwise_counts_seconds():
    trace = read_trace(DATA / "splitwise.csv")
    assert (trace.arrival_s.tolist(), trace.output_tokens.tolist()) == ([0, 2, 3], [32, 8, 16])


def test_a_list_of_lengths_has_no_times_and_says_so():
    trace = read_trace(DATA / "lengths.csv")
    assert (trace.span_s, trace.sources[0].time_unit) == (0, "none")
    assert trace.sources[0].notes == ("no arrival times: the number of requests at a time must be given",)


def test_lines_without_times_are_refused_until_asked_for_as_lengths():
    path = DATA / "aiperf_multiturn_no_timestamp.jsonl"
    with pytest.raises(TraceError, match=r"and not `arrival_s`") as caught:
        read_trace(path)
    assert "--format lengths" in caught.value.hint
    assert read_trace(path, format="lengths").prompt_tokens.tolist() == [300, 150, 90]


def test_keys_of_lines_are_named_by_the_user():
    with pytest.raises(TraceError, match=r"has the keys `id`, `t`, `in`, `out`, `hash_ids`"):
        read_trace(DATA / "weka_style.jsonl")
    with pytest.raises(TraceError, match="unknown unit"):
        read_trace(DATA / "weka_style.jsonl", columns=WEKA)
    trace = read_trace(DATA / "weka_style.jsonl", options=ReadOptions(columns=WEKA, time_unit="s"))
    assert (trace.arrival_s.tolist(), trace.prompt_tokens.tolist()) == ([0, 0, 4.2], [130, 70, 210])


def test_lines_may_hold_dates(tmp_path):
    times = ("2024-01-01T00:00:00Z", "2024-01-01 00:00:01.5")
    text = "\n".join(f'{{"t": "{time}", "in": 1, "out": 2}}' for time in times)
    assert read_trace(write(tmp_path / "a.jsonl", text), columns=WEKA).span_s == 1.5


@pytest.mark.parametrize(
    "times",
    [
        pa.array([1.5, 2.0, 4.5]),
        pa.array([1500, 2000, 4500], pa.timestamp("ms")),
        pa.array([1_500_000_000, 2_000_000_000, 4_500_000_000], pa.timestamp("ns", tz="UTC")),
        pa.array(["1970-01-01T00:00:01.5Z", "1970-01-01T00:00:02Z", "1970-01-01T00:00:04.5Z"]),
    ],
)
def test_parquet_may_hold_times_as_numbers_dates_or_text(tmp_path, times):
    table = pa.table({"arrival_s": times, "prompt_tokens": [1, 2, 3], "output_tokens": [1.0, 2.0, 3.0]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert read_trace(tmp_path / "a.parquet").arrival_s.tolist() == [0, 0.5, 3]


def test_cells_of_parquet_that_are_missing_or_absurd_cost_their_row(tmp_path):
    table = pa.table(
        {
            "arrival_s": [0.0, None, 2.0, 3.0, float("nan")],
            "prompt_tokens": pa.array([1, 2, None, 10**18, 5]),
            "output_tokens": pa.array([1, 2, 3, 4, 5], pa.uint16()),
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    source = read_trace(tmp_path / "a.parquet").sources[0]
    assert (source.read, source.kept) == (5, 1)
    assert sorted(source.dropped) == [
        "time missing",
        "time not readable",
        "token count above 100000000",
        "token count missing",
    ]


def test_a_column_of_parquet_that_is_no_number_is_refused(tmp_path):
    table = pa.table({"arrival_s": [0.0], "prompt_tokens": ["many"], "output_tokens": [1]})
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(TraceError, match=r"`prompt_tokens` in .* is of type string"):
        read_trace(tmp_path / "a.parquet")


def test_damaged_parquet_is_refused(tmp_path):
    whole = (DATA / "plain.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(whole[:-20])
    with pytest.raises(TraceError, match="is not readable as Parquet"):
        read_trace(tmp_path / "a.parquet")


def long_parquet(path, changes):
    """Write rows for three blocks in groups of another size; `changes` maps rows to times."""
    rows = np.arange(2 * BLOCK_ROWS + 10)
    times = rows.astype(float)
    for row, time in changes.items():
        times[row] = time
    table = pa.table({"arrival_s": times, "prompt_tokens": rows + 1, "output_tokens": rows + 1})
    parquet.write_table(table, path, row_group_size=50_000)
    return read_trace(path)


@pytest.mark.parametrize("row", [1, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 2 * BLOCK_ROWS])
def test_a_row_out_of_order_is_seen_at_the_edges_of_blocks(tmp_path, row):
    trace = long_parquet(tmp_path / "a.parquet", {row: row - 1.5})
    assert trace.sources[0].notes == ("1 row was out of order; sorted by time",)
    assert trace.prompt_tokens.sum() == sum(range(1, 2 * BLOCK_ROWS + 11))


@pytest.mark.parametrize("row", [BLOCK_ROWS - 1, BLOCK_ROWS, 2 * BLOCK_ROWS])
def test_one_uneven_gap_makes_arrivals_believable(tmp_path, row):
    assert "exactly 1 s apart" in long_parquet(tmp_path / "a.parquet", {}).sources[0].notes[0]
    assert long_parquet(tmp_path / "b.parquet", {row: row - 0.5}).sources[0].notes == ()


def test_a_bad_cell_in_a_later_block_of_parquet_costs_its_row(tmp_path):
    trace = long_parquet(tmp_path / "a.parquet", {2 * BLOCK_ROWS: float("nan")})
    assert (trace.sources[0].read, trace.sources[0].kept) == (2 * BLOCK_ROWS + 10, 2 * BLOCK_ROWS + 9)
    assert trace.arrival_s[-1] == 2 * BLOCK_ROWS + 9


@pytest.mark.parametrize("first", ["", "?", "null"])
def test_the_first_row_does_not_decide_how_times_are_written(tmp_path, first):
    table = write(tmp_path / "a.csv", f"t_s,in,out\n{first},1,2\n0,1,2\n1.5,3,4\n")
    first = "null" if first in ("", "null") else f'"{first}"'
    rows = "".join(f'{{"t_s": {t}, "in": 1, "out": 2}}\n' for t in (first, 0, 1.5))
    for path in (table, write(tmp_path / "a.jsonl", rows)):
        assert read_trace(path, columns=ColumnNames("t_s", "in", "out")).arrival_s.tolist() == [0, 1.5]


def test_a_first_line_without_a_key_hides_no_format(tmp_path):
    text = (DATA / "mooncake_ms.jsonl").read_text()
    source = read_trace(write(tmp_path / "a.jsonl", '{"input_length": 5}\n' + text)).sources[0]
    assert (source.format, source.dropped) == ("mooncake", {"time missing": 1})
