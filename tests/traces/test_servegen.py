import shutil
from pathlib import Path

import numpy as np
import pytest

from trtgate.errors import TraceError
from trtgate.traces import ReadOptions, read_trace

DATA = Path(__file__).parents[1] / "data" / "traces"
RATES = DATA / "servegen-small-trace.csv"
LENGTHS = DATA / "servegen-small-dataset.json"


def pair(tmp_path, rates=None, lengths=None):
    (tmp_path / "a-trace.csv").write_text(rates or RATES.read_text())
    (tmp_path / "a-dataset.json").write_text(lengths or LENGTHS.read_text())
    return tmp_path / "a-trace.csv"


def test_the_recorded_rates_give_the_number_of_requests():
    trace = read_trace(RATES)
    assert len(trace) == 0.05 * 600 + 0.1 * 600
    assert np.all((trace.arrival_s < 600) | (trace.arrival_s > 20_000))


def test_lengths_come_from_the_window_they_arrive_in():
    trace = read_trace(RATES)
    early = trace.arrival_s < 600
    assert set(trace.prompt_tokens[early].tolist()) == {100, 900}
    assert set(trace.prompt_tokens[~early].tolist()) == {50, 650}
    assert set(trace.output_tokens.tolist()) == {7, 9, 11}


def test_either_file_of_the_pair_gives_the_same_trace():
    assert read_trace(RATES).digest == read_trace(LENGTHS).digest


def test_the_seed_decides_and_is_noted():
    other = read_trace(RATES, options=ReadOptions(seed=1))
    assert other.digest != read_trace(RATES).digest
    assert other.sources[0].notes == ("drawn with seed 1 from 2 windows of 600 s; 1 window has no lengths",)


def test_a_half_of_the_pair_is_missed_by_name(tmp_path):
    shutil.copy(RATES, tmp_path / "b-trace.csv")
    with pytest.raises(TraceError, match=r"b-dataset.json` is missing beside `b-trace.csv`"):
        read_trace(tmp_path / "b-trace.csv")


@pytest.mark.parametrize(
    "row",
    [
        "600,x,1,Gamma,1,1",
        "600,0.1,1,Normal,1,1",
        "600,0.1,1,Gamma,0,1",
        "600,inf,1,Gamma,1,1",
        "1,2,,,,,",
        "nan,1,1,Gamma,1,1",
    ],
)
def test_a_row_that_is_no_window_is_named_by_its_number(tmp_path, row):
    with pytest.raises(TraceError, match="row 2 of"):
        read_trace(pair(tmp_path, rates=f"0,0,0,,0,0\n{row}\n"), format="servegen")


@pytest.mark.parametrize("rates", ["0,0,0,,0,0\n", "43200,1,1,Gamma,1,1\n"])
def test_a_profile_without_requests_is_refused(tmp_path, rates):
    with pytest.raises(TraceError, match="no window with a rate and lengths"):
        read_trace(pair(tmp_path, rates=rates))


def test_an_absurd_rate_is_refused_before_anything_is_drawn(tmp_path):
    with pytest.raises(TraceError, match="stands for more than 50000000 requests"):
        read_trace(pair(tmp_path, rates="0,1e9,1,Gamma,1,1\n"))


@pytest.mark.parametrize(
    "shares",
    [
        "{}x",
        "{1: -1.0}",
        "{-1: 1.0}",
        "{1: 'a'}",
        "[1]",
        "{1: 0.0}",
        "{10**9: 1}",
        "{" + "9" * 40 + ": 1.0}",
        "(" * 300,
    ],
)
def test_a_broken_distribution_is_refused(tmp_path, shares):
    text = '{"0": {"input_tokens": "{1: 1.0}", "output_tokens": "%s"}}'.replace("%s", shares)
    with pytest.raises(TraceError, match="is no data set of a ServeGen profile"):
        read_trace(pair(tmp_path, lengths=text))
