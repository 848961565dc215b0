"""Recording a live server: every row once, growth of counters through restarts, and what was lost."""

import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.candidates import small_profile
from tests.pages import Script, decode_rows, page, pages, row
from trtgate.console import Console
from trtgate.errors import TraceError, UsageError
from trtgate.evidence.live_buckets import EMPTY, OPEN_END, record_buckets
from trtgate.evidence.live_rows import EARLIER, record_rows
from trtgate.evidence.recorder import record
from trtgate.evidence.recording import Log, Wanted, parse_span, reader, stopped_by_signals, ticks
from trtgate.plans.config import config_for
from trtgate.plans.histogram import Bins, Histogram
from trtgate.runtimes import runtime_for
from trtgate.runtimes.base import Launch
from trtgate.runtimes.process import serve
from trtgate.runtimes.ready import new_session
from trtgate.traces import read_any

QUIET = Console(quiet=True)


def log_of(bodies: Sequence[str | None], **wanted: object) -> Log:
    """A recording that reads these answers, one each second; None is a reading that fails."""
    left = iter(bodies[1:])

    def read() -> str:
        body = next(left)
        if body is None:
            raise UsageError("no answer")
        return body

    settings = {"url": "http://host:8000", "for_s": 60.0} | wanted
    seconds = range(len(bodies) - 1)
    return Log(Wanted(**settings), QUIET, bodies[0] or "", read, map(float, seconds))  # type: ignore[arg-type]


def decode(made: Histogram) -> dict[int, int]:
    return dict(zip(made.decode.low, made.decode.steps, strict=True))


def test_rows_of_all_readings_are_counted_once_and_earlier_ones_left_out() -> None:
    made = record_rows(log_of([decode_rows(1, [9]), decode_rows(2, [3, 3]), "[]", decode_rows(4, [5])]))
    (source,) = made.sources
    assert (decode(made), made.origin) == ({3: 2, 5: 1}, "recorded")
    assert (source.read, source.kept, source.dropped) == (4, 3, {EARLIER: 1})
    assert (source.name, source.span_s, source.notes) == ("host:8000", 2.0, ())


def test_a_step_with_context_counts_all_its_tokens() -> None:
    made = record_rows(
        log_of(["[]", json.dumps([row(1, contexts=1, tokens=40, generations=3)])], draft_len=1)
    )
    assert (made.tokens.low, made.decode.total) == ((46,), 0)


def test_raw_rows_read_from_the_file_give_the_same_steps(tmp_path: Path) -> None:
    raw = tmp_path / "new" / "rows.jsonl"
    made = record_rows(log_of(["[]", decode_rows(1, [3, 4]), decode_rows(3, [4])], raw=raw))
    steps = read_any(raw)
    assert sorted(steps.decode_size) == [3, 4, 4]  # type: ignore[union-attr]
    assert steps.sources[0].sha256 == made.sources[0].sha256


def test_a_full_queue_before_a_gap_is_a_loss_that_is_said() -> None:
    log = log_of([decode_rows(1, [1]), decode_rows(501, [1] * 1000)])
    (source,) = record_rows(log).sources
    assert source.notes == ("499 iterations lost: more than 1000 passed between two readings",)


def test_a_gap_without_a_full_queue_points_to_another_reader() -> None:
    (source,) = record_rows(log_of([decode_rows(1, [1]), decode_rows(5, [1])])).sources
    assert source.notes == ("3 iterations missing between rows: another reader may empty `/metrics`",)


def test_iterations_that_begin_anew_are_a_restart_and_no_loss() -> None:
    (source,) = record_rows(log_of([decode_rows(90, [1]), decode_rows(1, [1, 1])])).sources
    assert source.notes == ("1 restart(s) of the server",)


def test_ranks_of_one_iteration_are_one_step_of_the_largest_size() -> None:
    rows = [
        row(at, generations=size, attentionDpRank=rank) for at in (1, 2) for rank, size in ((0, 2), (1, 7))
    ]
    assert decode(record_rows(log_of(["[]", json.dumps(rows)]))) == {7: 2}


def test_readings_that_fail_are_counted_and_cost_nothing_else() -> None:
    made = record_rows(log_of(["[]", decode_rows(1, [2]), None, "<html>", decode_rows(2, [2])]))
    assert (decode(made), made.sources[0].notes) == ({2: 2}, ("2 of 4 readings failed",))


def test_rows_that_are_no_iterations_are_dropped_by_reason() -> None:
    made = record_rows(log_of(["[]", json.dumps([1, "x", {"iter": {}}, row(1), row(2, generations=4)])]))
    assert made.sources[0].dropped == {"iteration not readable": 3, "iteration without work": 1}


def test_a_raw_file_that_cannot_be_written_does_not_end_the_recording(tmp_path: Path) -> None:
    made = record_rows(log_of(["[]", decode_rows(1, [2])], raw=tmp_path))
    assert (decode(made), made.sources[0].notes) == ({2: 1}, (f"`{tmp_path}` lacks rows: Is a directory",))


def test_a_server_that_stays_silent_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    log = log_of(["[]", *["[]"] * 20, decode_rows(1, [1])])
    log.console = Console()
    record_rows(log)
    assert capsys.readouterr().err.count("no iteration with work yet") == 1


def test_a_server_without_work_is_refused_with_what_to_do() -> None:
    with pytest.raises(TraceError, match="gave no iteration with work in 1 s") as caught:
        record_rows(log_of(["[]", "[]", json.dumps([row(1)])]))
    assert "enable_iter_perf_stats" in caught.value.hint


def test_buckets_grow_by_differences_and_stay_ranges() -> None:
    first = page({"1.0": 5, "8.0": 7, "16.0": 9, "+Inf": 9})
    last = page({"1.0": 5, "8.0": 10, "16.0": 14, "+Inf": 14})
    made = record_buckets(log_of([first, first, last]))
    assert made.tokens == Bins(low=(2, 9), high=(8, 16), steps=(3, 2))
    assert (made.sources[0].kept, made.decode.total) == (5, 0)


def test_a_counter_that_fell_counts_from_nought_and_is_a_restart() -> None:
    pages_seen = [page({"8.0": value, "+Inf": value}) for value in (100, 110, 4, 6)]
    (source,) = record_buckets(log_of(pages_seen)).sources
    assert source.kept == 10 + 4 + 2
    assert source.notes[1].startswith("1 restart(s) of the server")


def test_series_of_two_engines_are_added_and_a_new_one_counts_from_nought() -> None:
    one, two = page({"8.0": 3, "+Inf": 3}), page({"8.0": 5, "+Inf": 5}, labels='engine="1"')
    made = record_buckets(log_of([one, one, page({"8.0": 4, "+Inf": 4}) + two]))
    assert made.tokens.steps == (1 + 5,)


def test_steps_above_the_last_edge_need_a_ceiling() -> None:
    seen = [page({"8.0": 0, "+Inf": 0}), page({"8.0": 2, "+Inf": 5})]
    bounded, unbounded = record_buckets(log_of(seen, ceiling=64)), record_buckets(log_of(seen))
    assert (bounded.tokens.high, bounded.tokens.steps) == ((8, 64), (2, 3))
    assert (unbounded.tokens.steps, unbounded.sources[0].dropped) == ((2,), {OPEN_END: 3})


def test_a_page_without_the_histogram_names_those_it_has() -> None:
    with pytest.raises(UsageError, match="has no histogram `vllm:iteration_tokens_total`") as caught:
        record_buckets(log_of([page({"8.0": 1}, metric="vllm:other"), ""]))
    assert caught.value.hint == "choose one with `--metric`: vllm:other"


def test_steps_without_a_token_are_dropped_by_name() -> None:
    seen = [page({"0.0": 0, "8.0": 0}), page({"0.0": 4, "8.0": 5})]
    made = record_buckets(log_of(seen))
    assert (made.tokens.steps, made.sources[0].dropped) == ((1,), {EMPTY: 4})


def test_samples_that_can_be_no_counts_are_passed_over() -> None:
    odd = page({"8.0": float("nan"), "x": 1, "NaN": 1, "9.0": 1e300, "10.0": -1, "-2": 1, "+Inf": 3})
    made = record_buckets(log_of([page({"+Inf": 1}), odd], ceiling=9))
    assert made.tokens.steps == (2,)


def test_a_histogram_that_did_not_grow_is_refused() -> None:
    same = page({"8.0": 4, "+Inf": 4})
    with pytest.raises(TraceError, match="did not grow"):
        record_buckets(log_of([same, same]))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), (" 2h ", 7200), ("1d", 86400)]
)
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "ten", "-5s", "5 weeks", "1e9", "nan"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(UsageError, match="not a length of time"):
        parse_span(text)


def test_after_a_stop_one_reading_is_left() -> None:
    stop = threading.Event()
    stop.set()
    assert len(list(ticks(600.0, 600.0, stop))) == 1


@pytest.mark.usefixtures("default_signals")
def test_a_second_signal_interrupts() -> None:
    with stopped_by_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_what_the_runtime_gives_must_be_what_was_named() -> None:
    with pages(Script(["[]"])) as server, pytest.raises(UsageError, match="not that of `vllm`"):
        record(Wanted(server.url, 1.0, runtime="vllm"), QUIET)
    with (
        pages(Script([page({"8.0": 1})])) as server,
        pytest.raises(UsageError, match="no list of iterations"),
    ):
        record(Wanted(server.url, 1.0, runtime="tensorrt-llm"), QUIET)


@pytest.mark.parametrize("url", ["", "host:80", "ftp://host", "http://"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError, match="is no address"):
        record(Wanted(url, 1.0), QUIET)


@pytest.mark.timeout(60)
def test_the_reference_runtime_gives_one_context_step_and_the_decode_steps_of_each_answer(
    tmp_path: Path,
) -> None:
    profile, runtime = small_profile(), runtime_for("reference")
    config = config_for(profile, "tuned", (1, 2, 4), (16, 64))
    for name, text in runtime.render(config, "1.2.0").items():
        (tmp_path / name).write_text(text)
    launch = Launch("tiny", "127.0.0.1", 0, config, tmp_path)
    deadlines = {"progress_deadline_s": 60.0, "stop_deadline_s": 10.0}
    with (
        serve(runtime, launch, log_path=tmp_path / "log", env={}, **deadlines) as server,
        new_session() as session,
    ):
        ask, seen = reader(session, wanted := Wanted(server.url, 60.0)), []

        def read() -> str:
            seen.append(ask())
            return seen[-1]

        def after_requests() -> Iterator[float]:
            for second in range(3):
                body = {
                    "model": server.model,
                    "prompt": list(range(1, 11)),
                    "max_tokens": 5,
                    "temperature": 0,
                }
                assert session.post(f"{server.url}/v1/completions", json=body, timeout=60).ok
                yield float(second)
            for second in range(3, 2000):  # a row may come a moment after its token
                if sum(text.count('"iter"') for text in seen) >= 15:
                    break
                yield float(second)

        made = record_rows(Log(wanted, QUIET, read(), read, after_requests()))
    assert (made.tokens.low, made.tokens.steps) == ((10,), (3,))
    assert decode(made) == {1: 12}
    assert made.sources[0].notes == ()
