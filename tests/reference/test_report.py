from trtgate.reference.engine import Iteration
from trtgate.reference.graphs import Use
from trtgate.reference.report import Logger, iteration_line, metrics_row
from trtgate.reference.settings import Settings

ROW = Iteration(
    number=431,
    at=1768900443.5,
    host_ms=7.5,
    device_ms=7.25,
    previous_ms=None,
    queue_ms=0.0,
    contexts=0,
    generations=13,
    context_tokens=0,
    active=13,
    queued=2,
    admitted=0,
    completed=1,
    free_blocks=90,
    use=Use("decode", 16, 13, replayed=True, reason=None),
)


def test_an_iteration_line_is_laid_out_as_in_1_2_with_padding_among_the_generation_tokens():
    assert iteration_line(ROW) == (
        "iter = 431, global_rank = 0, rank = 0, currank_total_requests = 13/13, host_step_time = 7.5ms, "
        "prev_device_step_time = N/A, timestamp = 2026-01-20 09:14:03, num_scheduled_requests: 13, "
        "states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 16}"
    )


def test_a_metrics_row_counts_blocks_and_says_which_graph_ran():
    row = metrics_row(ROW, Settings("tiny"), blocks=100, memory_bytes=7)
    assert row["timestamp"] == "01-20-2026 09:14:03.500000"
    assert row["kvCacheStats"]["usedNumBlocks"] == 10
    assert row["graph"] == {"kind": "decode", "bucket": 16, "size": 13, "replayed": True, "reason": None}


def test_a_quiet_logger_prints_errors_only(capsys):
    log = Logger("error")
    log("I", "nothing")
    log("E", "bad")
    assert capsys.readouterr().out.endswith("[TRT-LLM] [RANK 0] [E] bad\n")
