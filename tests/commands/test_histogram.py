"""`trtgate histogram`: files of any format, sums of histograms, and live servers, from the command line."""

import gzip
import json
import os
import signal
from pathlib import Path

import pytest

from tests.candidates import TRACE, built, write_profile
from tests.commands.conftest import Trtgate
from tests.pages import Script, decode_rows, page, pages
from trtgate.plans.histogram import Histogram, merge

DATA = TRACE.parent
LIMITS = ("--max-batch-size", 8, "--max-num-tokens", 512, "--max-seq-len", 4096)


def written(folder: Path) -> Histogram:
    return Histogram.read(folder / "h.json")


def test_requests_are_simulated_under_the_limits(trtgate: Trtgate, tmp_path: Path) -> None:
    outcome = trtgate("histogram", TRACE, *LIMITS, "--out", tmp_path / "h.json")
    made = written(tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert (made.requests + sum(made.refused.values()), max(made.decode.high)) == (200, 8)
    assert "azure-conversation.csv (azure, times as written, 61.3 s)\n  read 200 = kept 200" in outcome.out
    assert "prior of `8b` on `h200`" in outcome.out


def test_no_line_is_longer_than_80_columns(trtgate: Trtgate, tmp_path: Path) -> None:
    plan = built(tmp_path / "c").folder / "plan.json"
    outcome = trtgate("histogram", TRACE, *LIMITS, "--plan", plan, "--out", tmp_path / "h.json")
    lines = outcome.out.splitlines()
    assert max(map(len, lines[:-1])) <= 80  # the last one names a file of any length
    assert sum("  < " in line for line in lines) >= 2


def test_the_same_command_writes_the_same_bytes(trtgate: Trtgate, tmp_path: Path) -> None:
    for name in ("a", "b"):
        trtgate("histogram", TRACE, *LIMITS, "--out", tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_parts_merge_to_the_bytes_of_the_whole_in_any_order(trtgate: Trtgate, tmp_path: Path) -> None:
    logs = [DATA / f"iterlog_trtllm_g{number}.log" for number in (1, 2, 3, 4)]
    trtgate("histogram", *logs, "--out", tmp_path / "whole")
    trtgate("histogram", *logs[2:], "--out", tmp_path / "late")
    trtgate("histogram", logs[1], logs[0], "--out", tmp_path / "early")
    outcome = trtgate(
        "histogram", "--merge", tmp_path / "late", tmp_path / "early", "--out", tmp_path / "sum"
    )
    assert outcome.code == 0
    assert (tmp_path / "sum").read_bytes() == (tmp_path / "whole").read_bytes()


def test_two_processes_give_the_bytes_of_one(trtgate: Trtgate, tmp_path: Path) -> None:
    files = (TRACE, DATA / "vidur.csv")
    trtgate("histogram", *files, *LIMITS, "--out", tmp_path / "one")
    trtgate("histogram", *files, *LIMITS, "--processes", 2, "--out", tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_profile_gives_the_limits_the_lengths_and_its_own_trace(trtgate: Trtgate, tmp_path: Path) -> None:
    profile = write_profile(tmp_path)
    outcome = trtgate("histogram", "--profile", profile, "--out", tmp_path / "h.json")
    made = written(tmp_path)
    assert made.limits is not None
    assert (outcome.code, made.requests, made.limits.max_batch_size) == (0, 200, 4)
    assert "costs   prior of `tiny` on `cpu`" in outcome.out
    assert max(made.tokens.high) <= 64


def test_both_parts_that_build_simulates_are_simulated_alike(trtgate: Trtgate, tmp_path: Path) -> None:
    candidate = built(tmp_path / "c")
    trtgate("histogram", "--profile", write_profile(tmp_path), "--out", tmp_path / "h.json")
    parts = [Histogram.read(candidate.folder / name) for name in ("histogram.json", "held-out.json")]
    assert written(tmp_path).limits == parts[0].limits
    assert written(tmp_path).requests == merge(*parts).requests


def test_an_option_wins_over_the_profile(trtgate: Trtgate, tmp_path: Path) -> None:
    profile = write_profile(tmp_path)
    arguments = ("--profile", profile, "--max-batch-size", 2, "--no-chunked-prefill", "--replicas", 3)
    assert trtgate("histogram", *arguments, "--out", tmp_path / "h.json").code == 0
    limits = written(tmp_path).limits
    assert limits is not None
    assert (limits.max_batch_size, limits.chunked_prefill, limits.replicas) == (2, False, 3)


def test_requests_without_limits_are_refused_and_name_the_missing_ones(
    trtgate: Trtgate, tmp_path: Path
) -> None:
    outcome = trtgate("histogram", TRACE, "--max-num-tokens", 64, "--out", tmp_path / "h.json")
    assert outcome.code == 2
    assert outcome.error == (
        f"`{TRACE}` holds requests, whose steps depend on `--max-batch-size`, `--max-seq-len`"
    )
    assert not (tmp_path / "h.json").exists()


def test_iterations_need_no_limits(trtgate: Trtgate, tmp_path: Path) -> None:
    outcome = trtgate("histogram", DATA / "trtllm_metrics_rows.jsonl", "--out", tmp_path / "h.json")
    assert (outcome.code, written(tmp_path).origin, written(tmp_path).limits) == (0, "recorded", None)
    assert "read 4 = kept 3 + dropped 1 (1 iteration without work)" in outcome.out


def test_buckets_stay_ranges(trtgate: Trtgate, tmp_path: Path) -> None:
    source = DATA / "vllm_metrics.txt"
    outcome = trtgate("histogram", source, "--max-num-tokens", 4096, "--out", tmp_path / "h.json")
    assert not written(tmp_path).tokens.exact
    assert "known as ranges" in outcome.out


def test_an_open_bucket_needs_a_ceiling(trtgate: Trtgate, tmp_path: Path) -> None:
    source = tmp_path / "page.txt"
    source.write_text(page({"8.0": 2, "+Inf": 5}))
    outcome = trtgate("histogram", source, "--out", tmp_path / "h.json")
    assert (outcome.code, outcome.hint) == (2, "say where it ends with `--max-num-tokens`")
    assert outcome.error == f"3 steps of `{source}` are in its last bucket, which has no upper end"


def test_a_length_list_runs_at_the_concurrency_that_is_said(trtgate: Trtgate, tmp_path: Path) -> None:
    limits = ("--concurrency", 2, "--max-num-tokens", 4096, "--max-seq-len", 8192)
    trtgate("histogram", DATA / "lengths.csv", *limits, "--out", tmp_path / "h.json")
    assert max(written(tmp_path).decode.high) == 2
    outcome = trtgate("histogram", TRACE, *limits, "--out", tmp_path / "h.json")
    assert (outcome.code, "has arrival times" in outcome.error) == (2, True)


def test_columns_and_unit_of_a_plain_table_are_named_by_option(trtgate: Trtgate, tmp_path: Path) -> None:
    table = tmp_path / "t.csv.gz"
    table.write_bytes(gzip.compress(b"when,inn,out\n0,10,3\n1500,10,2\n"))
    names = ("--columns", "time=when,prompt=inn,output=out")
    outcome = trtgate("histogram", table, *names, "--time-unit", "ms", *LIMITS, "--out", tmp_path / "h.json")
    assert outcome.code == 0
    assert written(tmp_path).sources[0].span_s == 1.5


def test_json_is_the_record_that_is_written(trtgate: Trtgate, tmp_path: Path) -> None:
    outcome = trtgate("histogram", TRACE, *LIMITS, "--json", "--out", tmp_path / "h.json")
    assert json.loads(outcome.out) == json.loads((tmp_path / "h.json").read_text())


def test_a_plot_is_drawn_beside(trtgate: Trtgate, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    trtgate("histogram", TRACE, *LIMITS, "--plot", tmp_path / "h.svg", "--out", tmp_path / "h.json")
    assert (tmp_path / "h.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "there is nothing to read"),
        (("none.csv",), "`none.csv` does not exist"),
        ((TRACE, "--format", "azzure"), "`azzure` is not a format"),
        ((TRACE, "--columns", "a=b"), "`a=b` does not name the columns"),
        ((TRACE, "--endpoint", "http://127.0.0.1:1"), "files and `--endpoint` exclude each other"),
        (("--merge", TRACE), f"`{TRACE}` is not valid JSON"),
        ((TRACE, "--plan", "none.json"), "`none.json` does not exist"),
        ((TRACE, "--speed-up", "0"), "a speed-up of `0` is not above zero"),
        ((TRACE, "--draft-len", "600"), "`--max-num-tokens 512` is below the 601 of one request"),
        (("--endpoint", "http://127.0.0.1:1", "--for", "soon"), "`soon` is not a length of time"),
    ],
)
def test_a_mistake_is_one_error_and_writes_nothing(
    trtgate: Trtgate, tmp_path: Path, arguments: tuple[object, ...], message: str
) -> None:
    outcome = trtgate("histogram", *arguments, *LIMITS, "--out", tmp_path / "h.json")
    assert (outcome.code, outcome.error, bool(outcome.hint)) == (2, message, True)
    assert list(tmp_path.iterdir()) == []


def test_an_endpoint_that_does_not_answer_is_named(
    trtgate: Trtgate, tmp_path: Path, closed_port: int
) -> None:
    url = f"http://127.0.0.1:{closed_port}"
    outcome = trtgate("histogram", "--endpoint", url, *LIMITS, "--out", tmp_path / "h.json")
    assert (outcome.code, outcome.error) == (2, f"`{url}/metrics` does not answer: ConnectionError")
    assert list(tmp_path.iterdir()) == []


def test_a_sum_is_not_written_over_one_of_its_parts(trtgate: Trtgate, tmp_path: Path) -> None:
    trtgate("histogram", TRACE, *LIMITS, "--out", tmp_path / "h.json")
    before = (tmp_path / "h.json").read_bytes()
    outcome = trtgate("histogram", "--merge", tmp_path / "h.json", "--out", tmp_path / "h.json")
    assert (outcome.code, (tmp_path / "h.json").read_bytes()) == (2, before)


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_keeps_and_writes_what_was_read(trtgate: Trtgate, tmp_path: Path, number: int) -> None:
    bodies = ["[]", decode_rows(1, [4, 4]), "[]", decode_rows(3, [2])]
    with pages(Script(bodies, then=lambda: os.kill(os.getpid(), number))) as server:
        raw = ("--raw", tmp_path / "rows.jsonl")
        outcome = trtgate(
            "histogram", "--endpoint", server.url, "--for", "1h", *raw, "--out", tmp_path / "h.json"
        )
    made = written(tmp_path)
    assert (outcome.code, made.decode.low) == (0, (2, 4))
    assert "what was read is kept" in outcome.err
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) >= 3


@pytest.mark.usefixtures("default_signals")
def test_a_signal_before_anything_was_read_is_130(trtgate: Trtgate, tmp_path: Path) -> None:
    with pages(Script(["[]", "[]"], then=lambda: os.kill(os.getpid(), signal.SIGINT))) as server:
        outcome = trtgate("histogram", "--endpoint", server.url, "--for", "1h", "--out", tmp_path / "h.json")
    assert (outcome.code, (tmp_path / "h.json").exists()) == (130, False)


def test_an_exposition_is_recorded_by_its_growth(trtgate: Trtgate, tmp_path: Path) -> None:
    bodies = [page({"8.0": 5, "+Inf": 5}), page({"8.0": 9, "+Inf": 9})]
    raw = tmp_path / "raw.txt"
    with pages(Script(bodies)) as server:
        outcome = trtgate(
            *("histogram", "--endpoint", server.url, "--runtime", "vllm", "--for", "0.1s", "--raw", raw),
            *("--out", tmp_path / "h.json"),
        )
    assert (outcome.code, written(tmp_path).tokens.steps) == (0, (4,))
    assert raw.read_text().splitlines()[0].endswith('_bucket{engine="0",le="8.0"} 5 0')
    assert server.paths[0] == "/metrics"


def test_nothing_is_recorded_for_a_place_that_cannot_be_written(trtgate: Trtgate, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pages(Script(["[]"])) as server:
        for out in (tmp_path, tmp_path / "file" / "h.json"):
            outcome = trtgate("histogram", "--endpoint", server.url, "--out", out)
            assert (outcome.code, outcome.error) == (2, f"`{out}` cannot be written")
        assert server.asked == 0


def test_replicas_that_cannot_keep_up_are_a_warning(trtgate: Trtgate, tmp_path: Path) -> None:
    fast = trtgate("histogram", TRACE, *LIMITS, "--speed-up", 1000, "--out", tmp_path / "h.json")
    slow = trtgate("histogram", TRACE, *LIMITS, "--out", tmp_path / "h.json")
    assert "warning: 1 replica(s) cannot keep up" in fast.out
    assert "warning" not in slow.out


def test_costs_from_a_file_are_named_and_used(trtgate: Trtgate, tmp_path: Path) -> None:
    costs = built(tmp_path / "c").folder / "costs.json"
    outcome = trtgate("histogram", TRACE, *LIMITS, "--costs", costs, "--out", tmp_path / "h.json")
    assert str(costs) in outcome.out.replace("\n  ", "")
    trtgate("histogram", TRACE, *LIMITS, "--out", tmp_path / "prior.json")
    assert written(tmp_path).decode != Histogram.read(tmp_path / "prior.json").decode


def test_costs_of_another_model_are_refused_for_a_profile_unless_told(
    trtgate: Trtgate, tmp_path: Path
) -> None:
    costs = built(tmp_path / "c").folder / "costs.json"
    costs.write_text(costs.read_text().replace('"model": "tiny"', '"model": "huge"'))
    arguments = ("--profile", write_profile(tmp_path), "--costs", costs, "--out", tmp_path / "h.json")
    outcome = trtgate("histogram", *arguments)
    assert (outcome.code, "holds costs of `huge`" in outcome.error) == (2, True)
    assert trtgate("histogram", *arguments, "--any-platform").code == 0


def test_a_url_is_read_as_a_file_is(trtgate: Trtgate, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://azure-conversation.csv", "wb") as file:
        file.write(TRACE.read_bytes())
    trtgate("histogram", "memory://azure-conversation.csv", *LIMITS, "--out", tmp_path / "h.json")
    trtgate("histogram", TRACE, *LIMITS, "--out", tmp_path / "file.json")
    assert (tmp_path / "h.json").read_bytes() == (tmp_path / "file.json").read_bytes()


def test_a_url_without_limits_or_with_scaled_lengths_is_refused(trtgate: Trtgate, tmp_path: Path) -> None:
    for arguments, message in (
        ((), "holds requests, whose steps depend on"),
        (("--profile", write_profile(tmp_path)), "cannot be read with `traffic.length_scale`"),
    ):
        outcome = trtgate("histogram", "memory://t.csv", *arguments, "--out", tmp_path / "h.json")
        assert (outcome.code, message in outcome.error) == (2, True)
