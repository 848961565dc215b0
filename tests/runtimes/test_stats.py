"""Reading statistics: rows to steps, drained queues, lost rows, lines of the log joined with rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.fakes import CONFIG, Fake, serving
from trtgate.runtimes.base import Grids, Row
from trtgate.runtimes.rows import steps_from_rows
from trtgate.runtimes.stats import Poller
from trtgate.runtimes.trtllm_log import rows as log_rows

GRIDS = Grids((1, 2, 4, 8), (16, 32))


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))


def row(number: int, *, contexts: int = 0, context_tokens: int = 0, generations: int = 0, **more: Any) -> Row:
    batch = {
        "numScheduledRequests": contexts + generations,
        "numContextRequests": contexts,
        "numGenRequests": generations,
        "numCtxTokens": context_tokens,
    }
    return {"iter": number, "inflightBatchingStats": batch, **more}


def only(given: Row, *, padding: bool = True, draft_len: int = 0):
    (step,) = steps_from_rows([given], GRIDS, padding=padding, draft_len=draft_len)
    return step


@pytest.mark.parametrize(
    ("generations", "padding", "bucket", "reason"),
    [
        (3, True, 4, None),
        (8, True, 8, None),
        (9, True, None, "above largest bucket"),
        (3, False, None, "padding off"),
    ],
)
def test_decode_step_falls_into_the_next_bucket(generations, padding, bucket, reason):
    step = only(row(1, generations=generations), padding=padding)
    assert (step.kind, step.bucket, step.replayed, step.reason) == (
        "decode",
        bucket,
        bucket is not None,
        reason,
    )
    assert step.predicted


def test_mixed_step_counts_all_tokens_and_is_always_padded():
    step = only(row(1, contexts=1, context_tokens=20, generations=6), padding=False)
    assert (step.kind, step.size, step.bucket, step.padding) == ("tokens", 26, 32, 6)


def test_draft_tokens_count_in_a_mixed_step():
    assert only(row(1, contexts=1, context_tokens=20, generations=2), draft_len=3).size == 28


def test_what_the_runtime_reports_is_not_predicted():
    graph = {"kind": "decode", "bucket": 4, "size": 3, "replayed": False, "reason": "padding-refused"}
    step = only(row(1, generations=3, graph=graph))
    assert (step.bucket, step.replayed, step.reason, step.predicted) == (4, False, "padding-refused", False)
    assert step.padding == 0


def test_row_without_work_is_no_step():
    assert steps_from_rows([row(1), {"iter": 2}, {}], GRIDS, padding=True) == []


def test_zero_that_is_never_reported_is_unknown():
    step = only(row(1, generations=1, gpuMemUsage=0, iterLatencyMS=14.9))
    assert (step.memory_bytes, step.step_ms, step.kv_tokens, step.queued) == (None, None, None, None)


def test_cache_use_is_given_in_tokens():
    cache = {"maxNumBlocks": 100, "usedNumBlocks": 0, "tokensPerBlock": 32}
    step = only(row(1, generations=1, kvCacheStats=cache, hostStepTimeMS=7.5, numQueuedRequests=2))
    assert (step.kv_tokens, step.kv_used_tokens, step.step_ms, step.queued) == (3200, 0, 7.5, 2)


class Recorded:
    """A server whose statistics are read from a script, without any process."""

    def __init__(self, url: str, log_path: Path | None = None) -> None:
        self.url, self.log_path, self.kv_tokens = url, log_path, None

    def alive(self) -> bool:
        return True


def poller_of(server, path: Path, script=None) -> Poller:
    return Poller(server, Fake(script or {}), GRIDS, CONFIG, path / "rows.jsonl", interval_s=600.0)


def test_rows_are_kept_as_they_came_and_the_queue_is_drained(tmp_path):
    reads = [[row(1, generations=1)], [row(2, generations=2, new="key")], [row(3, generations=3)]]
    with serving({"metrics": reads}, tmp_path) as server, poller_of(server, tmp_path) as poller:
        assert [step.size for step in poller.drain()] == [2, 3]
    kept = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert kept == [one for read in reads for one in read]


def test_steps_since_a_mark_leave_out_earlier_ones(tmp_path):
    reads = [[], [row(1, generations=1)], [], [], [row(2, generations=2)]]
    with serving({"metrics": reads}, tmp_path) as server, poller_of(server, tmp_path) as poller:
        poller.drain()
        mark = poller.mark()
        poller.drain()
        assert [step.iteration for step in poller.steps_since(mark)] == [2]


def test_empty_statistics_while_tokens_flow_are_a_warning(tmp_path):
    with serving({}, tmp_path) as server, poller_of(server, tmp_path) as poller:
        poller.drain(traffic=False)
        assert poller.warnings == ()
        poller.drain()
        assert "enable_iter_perf_stats: true" in poller.warnings[0]


def test_gap_between_rows_points_to_another_reader(tmp_path):
    reads = [[], [row(1, generations=1), row(5, generations=1)]]
    with serving({"metrics": reads}, tmp_path) as server, poller_of(server, tmp_path) as poller:
        poller.drain()
        assert poller.missing_iterations == 3
        assert "another reader" in poller.warnings[0]


def test_gap_before_a_full_buffer_is_a_loss(tmp_path):
    reads = [[row(1, generations=1)], [row(number, generations=1) for number in range(500, 1500)]]
    with serving({"metrics": reads}, tmp_path) as server, poller_of(server, tmp_path) as poller:
        assert len(poller.drain()) == 1000
        assert "more than 1000 iterations passed" in poller.warnings[0]


LINE = (
    "[01/20/2026-09:14:03] [TRT-LLM] [RANK 0] [I] iter = {number}, global_rank = 0, rank = 0, "
    "currank_total_requests = 13/13, host_step_time = 7.412004ms, prev_device_step_time = N/A, timestamp = "
    "2026-01-20 09:14:03, num_scheduled_requests: {scheduled}, states = {{'num_ctx_requests': 0, "
    "'num_ctx_tokens': 0, 'num_generation_tokens': {computed}}}"
)


def test_line_of_the_log_adds_time_and_observed_padding(tmp_path):
    log = tmp_path / "lines.log"
    log.write_text("")
    script = {"metrics": [[], [row(431, generations=5)]]}
    with serving(script, tmp_path) as server, poller_of(Recorded(server.url, log), tmp_path) as poller:
        log.write_text(LINE.format(number=430, scheduled=5, computed=8) + "\n")
        (step,) = poller.drain()
    assert (step.step_ms, step.bucket, step.replayed, step.predicted) == (7.412004, 8, True, False)


def test_line_of_another_step_is_not_joined(tmp_path):
    log = tmp_path / "lines.log"
    log.write_text("")
    script = {"metrics": [[], [row(431, generations=5)]]}
    with serving(script, tmp_path) as server, poller_of(Recorded(server.url, log), tmp_path) as poller:
        log.write_text(LINE.format(number=431, scheduled=6, computed=8) + "\n")
        (step,) = poller.drain()
    assert step.step_ms is None


ERAS = {
    "A": "iter = 7, global_rank = 0, rank = 0, currank_total_requests = 1/1, elapsed_time = 0.0125s, "
    "timestamp = 2026-01-20 09:14:03, num_scheduled_requests: 3, states = {'num_ctx_requests': 0, "
    "'num_ctx_tokens': 0, 'num_generation_tokens': 4}",
    "B": "iter = 7, global_rank = 0, rank = 0, currank_total_requests = 1/1, host_step_time = 12.5ms, "
    "prev_device_step_time = N/A, timestamp = 2026-01-20 09:14:03, num_scheduled_requests: 3, states = "
    "{'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 4}",
    "C": "iter = 7, global_rank = 0, rank = 0, num_scheduled_requests = 3, kv_cache_util = N/A, "
    "currank_total_requests = 1/1, host_step_time = 12.5ms, prev_device_step_time = 5.210, timestamp = "
    "2026-08-20 09:14:03, states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 4, "
    "'cached_kv_tokens': 2211}, num_active = 3",
}


@pytest.mark.parametrize("era", sorted(ERAS))
def test_iteration_lines_of_every_era_are_read(era):
    (found,) = log_rows(["noise", f"[08/20/2026-09:14:03] [TRT-LLM] [I] [_torch][RANK 0] {ERAS[era]}"])
    log = found["log"]
    assert (found["iter"], log["scheduled"], log["generation_tokens"], log["host_ms"]) == (7, 3, 4, 12.5)


def test_lines_of_other_ranks_are_left_out():
    assert log_rows([ERAS["B"].replace(" rank = 0", " rank = 1")]) == []
