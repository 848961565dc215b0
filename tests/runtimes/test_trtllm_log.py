"""TensorRT-LLM's start-up log: captured sizes, stages, and every failure by its root line."""

import re

import pytest

from tests.runtimes.fakes import PREFIX, START_LOG, serving
from trtgate.errors import RuntimeFailedError, TrtgateError, UsageError
from trtgate.runtimes import runtime_for
from trtgate.runtimes.base import Grids, Phase

RUNTIME = runtime_for("tensorrt-llm")
NEW_PREFIX = "[08/20/2026-09:14:03] [TRT-LLM] [I] [_torch][RANK 0] "


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))


def test_last_block_counts_since_the_first_is_an_estimate():
    again = [line.replace("batch size=1,", "batch size=2,") for line in START_LOG]
    assert RUNTIME.captured([*START_LOG, *again]) == Grids((2, 4), (16, 32))


def test_sweep_with_most_requests_captures_nothing_new():
    line = "Run piecewise CUDA graph warmup for num tokens=64 with most requests"
    assert RUNTIME.captured([*START_LOG, PREFIX + line]).tokens == (16, 32)


@pytest.mark.parametrize(
    "line",
    [
        "Run generation-only CUDA graph warmup for batch size=4, draft_len=0, max_seq_len=4096",
        "Run generation-only CUDA graph warmup (greedy) for batch size=4, draft_len=0, max_seq_len=4096",
        "Run generation-only CUDA graph warmup (advanced sampling) for batch size=4, draft_len=0, max_seq_len=4096",
        "Run generation only CUDA graph warmup for batch size=4, draft_len=0",
    ],
)
def test_capture_lines_of_every_version_are_read(line):
    for prefix in (PREFIX, NEW_PREFIX, "[TensorRT-LLM][INFO] "):
        assert RUNTIME.phase(prefix + line) == Phase("capture", "decode", 4)
        assert RUNTIME.captured([prefix + line]) == Grids((4,), ())


def test_size_that_was_skipped_for_lack_of_cache_is_not_captured():
    skipped = "Skipping CUDA graph warmup (greedy) for batch size=4, draft_len=0: not enough KV cache space."
    assert RUNTIME.captured([*START_LOG, PREFIX + skipped]).decode == (1,)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Loading weights concurrently", "load"),
        ("Running torch.compile warmup...", "compile"),
        ("Running autotuner warmup...", "warm-up"),
        ("Run warmup with 8192 tokens, include 0 generation tokens", "warm-up"),
        ("Creating CUDA graph instances for 2 batch sizes.", "capture"),
    ],
)
def test_stages_are_recognised(line, name):
    assert RUNTIME.phase(PREFIX + line) == Phase(name)


WORKER = "RuntimeError: Executor worker returned error"
TEARDOWN = "AttributeError: 'PyExecutor' object has no attribute 'cuda_graph_runner'"
FAILURES = [
    (
        [
            "Executor creation failed due to insufficient GPU memory.",
            "The following component could not be created: KV cache",
            "Total GPU memory (GiB): 139.8",
        ],
        "ran out of memory while capturing token bucket 16: `The following component could not be created: KV cache`",
        RuntimeFailedError,
    ),
    (
        ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", TEARDOWN, WORKER],
        "ran out of memory while capturing token bucket 16: `torch.OutOfMemoryError: CUDA out of memory.",
        RuntimeFailedError,
    ),
    (
        ["RuntimeError: CUDA error: operation not permitted when stream is capturing", TEARDOWN, WORKER],
        "the capture of a graph failed while capturing token bucket 16",
        RuntimeFailedError,
    ),
    (["Executor creation failed with NCCL error: x"], "the ranks could not reach each other", RuntimeFailedError),
    (["Hang detected on rank 1 in PyExecutor"], "a rank of the runtime hung", RuntimeFailedError),
    (["Executor worker died during initialization"], "a worker process vanished", RuntimeFailedError),
    (
        ["pydantic_core._pydantic_core.ValidationError: 1 validation error for TorchLlmArgs", "bogus",
         "  Extra inputs are not permitted"],
        "the runtime refused its configuration",
        UsageError,
    ),
    (
        ["ValueError: Please don't set both cuda_graph_config.batch_sizes and max_batch_size"],
        "the runtime refused its configuration",
        UsageError,
    ),
    (
        ["RuntimeError: The NVIDIA driver on your system is too old (found version 11060)."],
        "the driver does not fit",
        RuntimeFailedError,
    ),
    (["OSError: /x does not appear to have a file named config.json"], "found no such model", RuntimeFailedError),
    (
        ["ValueError: engine of version 0.10 lacks the key `x`", TEARDOWN, WORKER],
        "ended with 1 while capturing token bucket 16: `ValueError: engine of version 0.10 lacks the key `x``",
        RuntimeFailedError,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "said", "kind"), FAILURES, ids=[lines[0][:30] for lines, _, _ in FAILURES])
def test_failure_of_a_start_is_named_by_its_root(tmp_path, lines, said, kind):
    with pytest.raises(kind, match=re.escape(said)) as caught:
        serving({"lines": [*START_LOG, *lines], "exit": 1}, tmp_path).__enter__()
    assert isinstance(caught.value, TrtgateError)
    assert caught.value.hint


def test_taken_port_that_a_start_meets_is_tried_once_more(tmp_path):
    starts = []
    line = "RuntimeError: Failed to bind socket to 127.0.0.1:8000"
    script = {"lines": [line], "exit": 1}
    with pytest.raises(UsageError, match="taken between the check and the start"):
        serving(
            script, tmp_path, on_event=lambda event: event.kind == "phase" and starts.append(event)
        ).__enter__()
    assert len(starts) == 2


def test_rank_that_hangs_in_capture_is_named_with_its_bucket(tmp_path):
    lines = [PREFIX + "Run generation-only CUDA graph warmup for batch size=64, draft_len=0"]
    with pytest.raises(RuntimeFailedError, match="stopped making progress while capturing decode bucket 64"):
        serving({"lines": lines, "hang": True}, tmp_path, progress_deadline_s=1.0).__enter__()


def test_lines_of_another_prefix_are_errors_too():
    failure = RUNTIME.failure(["[TensorRT-LLM][ERROR] something broke", "[TensorRT-LLM][INFO] bye"], 1, None)
    assert failure.root == "something broke"


def test_last_words_while_serving_are_named(tmp_path):
    script = {
        "completion": "die",
        "last_words": "Event loop terminated with error: IndexError: list index out of range",
    }
    with pytest.raises(RuntimeFailedError, match="IndexError: list index out of range"):
        serving(script, tmp_path).__enter__()


def test_warning_about_the_same_thing_is_not_the_cause():
    warning = "[01/20/2026-09:10:41] [TRT-LLM] [RANK 0] [W] CUDA out of memory during tuning. Skipping."
    failure = RUNTIME.failure([warning, "ValueError: the cause"], 1, None)
    assert (failure.code, failure.root) == ("died", "ValueError: the cause")


def test_exception_that_was_only_mentioned_is_not_the_cause():
    lines = [
        "ImportError: flash_attn is not there, going on",
        "Traceback (most recent call last):",
        "ValueError: cause",
    ]
    assert RUNTIME.failure(lines, 1, None).root == "ValueError: cause"


def test_memory_that_was_free_before_is_told():
    lines = [
        "Executor creation failed due to insufficient GPU memory.",
        "The following component could not be created: KV cache",
        "Free GPU memory before component creation attempt (GiB): 3.25",
    ]
    assert RUNTIME.failure(lines, 1, Phase("load")).hint.endswith("; 3.25 GiB were free before")


def test_wrong_option_is_the_users_to_change(tmp_path):
    with pytest.raises(UsageError, match="refused its command line: `Error: No such option: --bogus`"):
        serving({"lines": ["Error: No such option: --bogus"], "exit": 2}, tmp_path).__enter__()


def test_capacity_of_the_cache_is_the_last_one_said():
    lines = [
        f"[MemUsageChange] Allocated 6 GiB for max tokens in paged KV cache ({size})." for size in (512, 4096)
    ]
    assert RUNTIME.kv_tokens(lines) == 4096


def test_signal_is_named():
    assert "died of SIGSEGV while loading the model" in RUNTIME.failure([], -11, Phase("load")).message
