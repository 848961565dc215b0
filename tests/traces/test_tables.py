import gzip
from datetime import datetime
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from trtgate.errors import ExitCode, TraceError
from trtgate.traces import ColumnNames, ReadOptions, read_any, read_trace
from trtgate.traces.files import LONGEST_LINE_BYTES
from trtgate.traces.plain import OWN_NAMES
from trtgate.traces.rows import SCALES
from trtgate.traces.scantable import scan_table
from trtgate.traces.tables import _cells

DATA = Path(__file__).parents[1] / "data" / "traces"
DEMO = Path(__file__).parents[2] / "profiles" / "traces" / "azure-conversation.csv.gz"
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
ROW = "2023-11-16 18:15:46.1200000,400,40"


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_the_demo_trace_is_the_whole_conversation_hour():
    trace = read_trace(DEMO)
    assert len(trace) == 19_366
    assert (trace.prompt_tokens.min(), trace.prompt_tokens.max()) == (2, 14_050)
    assert (trace.output_tokens.min(), trace.output_tokens.max()) == (7, 1_000)
    assert trace.span_s == 3501.721937


def test_the_cut_is_the_beginning_of_the_whole():
    cut = read_trace(DATA / "azure-conversation.csv")
    assert cut.arrival_s.tolist() == read_trace(DEMO).arrival_s[: len(cut)].tolist()


def test_2023_times_have_seven_digits_and_no_final_newline():
    trace = read_trace(DATA / "azure_2023_style.csv")
    assert trace.arrival_s.tolist() == [0, 4.215169, 5.102467, 14.88]
    assert trace.output_tokens.tolist() == [40, 100, 50, 16]


def test_2024_times_have_a_zone_and_not_all_a_fraction():
    trace = read_trace(DATA / "azure_2024_style.csv")
    assert trace.arrival_s.tolist() == [0, 0.041683, 0.157988, 1, 1.248279]


def test_2025_times_have_a_t_and_a_column_of_images_in_front():
    trace = read_trace(DATA / "azure_2025_multimodal_style.csv")
    assert trace.arrival_s.tolist() == [0, 5.55, 6.244]
    assert trace.prompt_tokens.tolist() == [770, 949, 4564]


def test_all_spellings_of_time_may_meet_in_one_file(tmp_path):
    times = ("2024-05-12 00:00:00", "2024-05-12T00:00:01Z", "2024-05-12 02:00:02.5+02:00")
    rows = [f"{time},5,6" for time in times]
    trace = read_trace(write(tmp_path / "a.csv", "\n".join([HEADER, *rows])))
    assert trace.arrival_s.tolist() == [0, 1, 2.5]


@pytest.mark.parametrize(
    "text",
    [
        f"{HEADER}\n{ROW}\n{ROW}\n",
        f"{HEADER}\r\n{ROW}\r\n{ROW}",
        f"\ufeff{HEADER}\n{ROW}\n{ROW}",
        f"{HEADER}\n\n{ROW}\n\n\n{ROW}\n   \n",
        f"\n{HEADER}\n{ROW}\n{ROW}",
        '"TIMESTAMP","ContextTokens","GeneratedTokens"\n' + '"2023-11-16 18:15:46.12","400","40"\n' * 2,
        f"TIMESTAMP, ContextTokens ,GeneratedTokens\n{ROW}\n{ROW}",
        "x,GeneratedTokens,ContextTokens,TIMESTAMP\n" + "?,40,400,2023-11-16 18:15:46\n" * 2,
    ],
)
def test_how_a_table_is_written_does_not_matter(tmp_path, text):
    trace = read_trace(write(tmp_path / "a.csv", text))
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([400, 400], [40, 40])
    assert trace.sources[0].read == trace.sources[0].kept == 2


def test_each_bad_row_is_dropped_under_its_own_reason():
    source = read_trace(DATA / "dirty_rows.csv").sources[0]
    assert (source.read, source.kept) == (10, 3)
    assert source.dropped == {
        "row of another shape": 1,
        "time not readable": 1,
        "token count above 100000000": 1,
        "token count missing": 1,
        "token count negative": 1,
        "token count not readable": 2,
    }


def test_rows_out_of_order_are_sorted_and_said():
    trace = read_trace(DATA / "dirty_rows.csv")
    assert trace.prompt_tokens.tolist() == [410, 400, 300]
    assert trace.sources[0].notes == ("1 row was out of order; sorted by time",)


@pytest.mark.parametrize("count", ["1000000000000000000", "1e18", "9" * 40, "inf", "-3", "1.5", "2k"])
def test_absurd_counts_cost_their_row_only(tmp_path, count):
    trace = read_trace(write(tmp_path / "a.csv", f"{HEADER}\n{ROW}\n2023-11-16 18:15:47,{count},5"))
    assert (len(trace), trace.sources[0].read) == (1, 2)


def test_an_answer_of_no_tokens_can_be_kept_as_one(tmp_path):
    path = write(tmp_path / "a.csv", f"{HEADER}\n{ROW}\n2023-11-16 18:15:47,8,0")
    assert read_trace(path).sources[0].dropped == {"no output tokens": 1}
    assert read_trace(path, options=ReadOptions(zero_output="one")).output_tokens.tolist() == [40, 1]


def test_the_source_is_told_by_digest_and_span():
    source = read_trace(DATA / "azure_2023_style.csv").sources[0]
    assert (source.name, source.format, source.time_unit) == ("azure_2023_style.csv", "azure", "timestamp")
    assert (source.span_s, len(source.sha256)) == (14.88, 64)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_compressed_files_are_read_whatever_their_name(tmp_path, pack):
    plain = (DATA / "azure_2023_style.csv").read_bytes()
    trace = read_trace(write(tmp_path / "a.csv", pack(plain[:80]) + pack(plain[80:])))
    assert trace.digest == read_trace(DATA / "azure_2023_style.csv").digest


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_compressed_file_that_was_cut_off_is_refused(tmp_path, pack):
    packed = pack((DATA / "azure-conversation.csv").read_bytes())
    with pytest.raises(TraceError, match=r"damaged|header and no rows|is empty"):
        read_trace(write(tmp_path / "a.csv", packed[: len(packed) // 2]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\r\n \n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (HEADER.encode(), "has a header and no rows"),
        (f"{HEADER}\n{ROW}".encode("utf-16"), "is UTF-16 text"),
        (bytes(range(256)) * 4, "is binary"),
        (b"\x1f\x8b\x08junk", "damaged"),
        (HEADER.replace(",", ";").encode() + b"\n1;2;3", "separates its columns by semicolons"),
        (HEADER.replace(",", "\t").encode() + b"\n1\t2\t3", "separates its columns by tabs"),
        (b"a,b\n1,2", "has the columns `a`, `b`, and not `arrival_s`, `prompt_tokens`, `output_tokens`"),
        (f"{HEADER}\nx,1,1\nx,1,1".encode(), r"no row of .* can be used: time not readable \(2\)"),
        (b"hello world", "is in no known format; it begins with `hello world`"),
    ],
)
def test_what_is_no_trace_is_refused_by_what_it_is(tmp_path, content, message):
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(write(tmp_path / "a.csv", content))
    assert caught.value.exit_code == ExitCode.USAGE
    assert caught.value.hint


def test_a_pointer_of_git_lfs_is_told_from_the_data():
    with pytest.raises(TraceError, match="Git LFS pointer") as caught:
        read_trace(DATA / "lfs_pointer.csv")
    assert caught.value.hint == "run `git lfs pull`"


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    with pytest.raises(TraceError, match="does not exist"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(TraceError, match="is a folder"):
        read_trace(tmp_path)


def test_an_endless_line_is_refused_before_it_fills_the_memory(tmp_path):
    long = write(tmp_path / "a.csv", f"{HEADER}\n{ROW}\n".encode() + b"7" * (2 * LONGEST_LINE_BYTES))
    with pytest.raises(TraceError, match=r"the line at byte 75 of .* is longer than 16 MiB"):
        read_trace(long)


def test_a_wrong_word_for_the_format_lists_the_right_ones():
    with pytest.raises(TraceError, match="`azur` is not a format") as caught:
        read_any(DATA / "azure_2023_style.csv", format="azur")
    assert "azure" in caught.value.hint


def test_a_format_that_does_not_fit_names_columns_found_and_needed():
    with pytest.raises(
        TraceError, match=r"has the columns `Timestamp`, .* and not `TIMESTAMP`, `ContextTokens`"
    ):
        read_trace(DATA / "burstgpt_6col.csv", format="azure")


def test_plain_columns_are_named_by_the_user(tmp_path):
    path = write(tmp_path / "a.csv", "at_ms,in,out\n5,1,2\n15,3,4")
    trace = read_trace(path, columns=ColumnNames("at_ms", "in", "out"))
    assert (trace.arrival_s.tolist(), trace.sources[0].time_unit) == ([0, 0.01], "ms")


def test_numbers_without_a_unit_are_refused_until_the_unit_is_said(tmp_path):
    path = write(tmp_path / "a.csv", "t,in,out\n5,1,2\n15,3,4")
    columns = ColumnNames("t", "in", "out")
    with pytest.raises(TraceError, match="unknown unit"):
        read_trace(path, columns=columns)
    trace = read_trace(path, options=ReadOptions(columns=columns, time_unit="s"))
    assert trace.arrival_s.tolist() == [0, 10]


def test_plain_columns_may_hold_dates_or_no_time_at_all(tmp_path):
    path = write(tmp_path / "a.csv", "t,in,out\n2024-01-01,1,2\n2024-01-02,3,4")
    assert read_trace(path, columns=ColumnNames("t", "in", "out")).span_s == 86_400
    listed = read_trace(path, columns=ColumnNames(None, "in", "out"))
    assert (listed.span_s, listed.sources[0].time_unit) == (0, "none")


def test_suspiciously_even_arrivals_are_noted(tmp_path):
    rows = "\n".join(f"{second},10,10" for second in range(250))
    trace = read_trace(write(tmp_path / "a.csv", f"arrival_s,prompt_tokens,output_tokens\n{rows}"))
    assert trace.sources[0].notes == ("arrivals are exactly 1 s apart: hardly a recorded trace",)


def test_the_first_arrival_is_zero_before_gaps_are_scaled(tmp_path):
    text = "arrival_s,prompt_tokens,output_tokens\n1178.625,5,5\n1180.625,5,5"
    assert read_trace(write(tmp_path / "a.csv", text)).sped_up(2).arrival_s.tolist() == [0, 1]


@given(
    st.lists(
        st.tuples(
            st.datetimes(datetime(1971, 1, 1), datetime(2190, 1, 1)),
            st.integers(0, 2_000_000_000),
            st.sampled_from([" ", "T"]),
            st.sampled_from(["", "Z", "+00:00"]),
            st.sampled_from(["seconds", "milliseconds", "microseconds"]),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_the_fast_scan_reads_dates_as_pandas_does(rows):
    lines = [f"{time.isoformat(sep, spec)}{zone},x,{n},{n}\r\n" for time, n, sep, zone, spec in rows]
    piece = "".join(lines).encode()
    fast, slow = scan_table(piece, 4, (0, 2, 3), 0.0), _cells(piece, 4, [0, 2, 3], "timestamp")
    assert fast is not None
    assert fast[0].tolist() == slow.time_us.tolist()
    assert fast[1].tolist() == [slow.prompt.tolist(), slow.output.tolist()]


@given(st.lists(st.decimals(0, 10**9, places=5), min_size=1, max_size=20), st.sampled_from(["s", "ms"]))
def test_the_fast_scan_reads_numbers_as_pandas_does(times, unit):
    piece = "".join(f"{time},1,2\n" for time in times).encode()
    fast, slow = scan_table(piece, 3, (0, 1, 2), SCALES[unit]), _cells(piece, 3, [0, 1, 2], unit)
    assert fast is not None
    assert fast[0].tolist() == slow.time_us.tolist()


@pytest.mark.parametrize(
    "row",
    [
        "2023-02-29 00:00:00,1,2",
        "2023-04-31 00:00:00,1,2",
        "2023-13-01 00:00:00,1,2",
        "2023-01-01 24:00:00,1,2",
        "2023-01-01 00:00:60,1,2",
        "2023-01-01 00:00:00.,1,2",
        "2023-01-01 00:00:00+01:00,1,2",
        "2023-01-01,1,2",
        "1969-12-31 23:59:59,1,2",
        "2023-01-01 00:00:00,1,2,3",
        "2023-01-01 00:00:00,1",
        "2023-01-01 00:00:00,-1,2",
        "2023-01-01 00:00:00,,2",
        '2023-01-01 00:00:00,"1",2',
        "2023-01-01 00:00:00,99999999999,2",
        "2023-01-01 00:0",
    ],
)
def test_the_fast_scan_gives_up_at_any_doubt(row):
    assert scan_table(f"2023-01-01 00:00:00,1,2\n{row}\n".encode(), 3, (0, 1, 2), 0.0) is None


def test_leap_days_are_days():
    found = scan_table(b"2024-02-29 00:00:00,1,2\n2000-02-29 00:00:00,1,2", 3, (0, 1, 2), 0.0)
    assert found is not None
    assert found[0].tolist() == [1_709_164_800_000_000, 951_782_400_000_000]


def test_a_bad_row_in_a_large_file_costs_itself_only(tmp_path):
    rows = [
        f"2023-11-16 18:{n // 60 % 60:02}:{n % 60:02}.{n % 1000:03},{n % 500 + 1},7" for n in range(60_000)
    ]
    rows[50_000] = "oops"
    trace = read_trace(write(tmp_path / "a.csv", "\n".join([HEADER, *rows])))
    assert trace.sources[0].dropped == {"row of another shape": 1}
    assert trace.prompt_tokens.sum() == sum(n % 500 + 1 for n in range(60_000)) - 50_000 % 500 - 1


def test_one_column_cannot_be_both_lengths(tmp_path):
    path = write(tmp_path / "a.csv", "a,b\n1,2")
    with pytest.raises(TraceError, match="`b` is named twice"):
        read_trace(path, columns=ColumnNames(None, "b", "b"))


CELLS = st.sampled_from(["1", "7", "0", "-1", "3.0", "3.5", "", "x", "NaN", "99999999999", '"5"', " 6 "])
COUNTS = {"1": 1, "7": 7, "3.0": 3, '"5"': 5, " 6 ": 6}
TIMES = st.sampled_from(["0", "1.5", "2", "-3", "", "y", "inf"])
SECONDS = {"0": 0.0, "1.5": 1.5, "2": 2.0, "-3": -3.0}


@given(st.lists(st.tuples(TIMES, CELLS, CELLS), min_size=1, max_size=30))
def test_a_table_is_read_as_if_row_by_row(tmp_path_factory, rows):
    text = "arrival_s,prompt_tokens,output_tokens\n" + "".join(",".join(row) + "\n" for row in rows)
    path = write(tmp_path_factory.getbasetemp() / "random.csv", text)
    good = [
        (SECONDS[t], COUNTS[p], COUNTS[o]) for t, p, o in rows if t in SECONDS and p in COUNTS and o in COUNTS
    ]
    if not good:
        with pytest.raises(TraceError, match="no row"):
            read_trace(path, options=ReadOptions(time_unit="s"))
        return
    trace = read_trace(path, options=ReadOptions(time_unit="s"), columns=OWN_NAMES)
    good.sort(key=lambda row: row[0])
    assert trace.arrival_s.tolist() == [time - good[0][0] for time, _, _ in good]
    assert trace.prompt_tokens.tolist() == [prompt for _, prompt, _ in good]
    assert trace.output_tokens.tolist() == [output for _, _, output in good]
    assert trace.sources[0].read == len(rows)


def test_bytes_that_are_no_text_cost_their_row_only(tmp_path):
    path = write(
        tmp_path / "a.csv", f"{HEADER}\n{ROW}\n".encode() + b"\xc8\xff,1\n2023-11-16 18:15:47,\xb4,5\n"
    )
    assert (len(read_trace(path)), read_trace(path).sources[0].read) == (1, 3)
