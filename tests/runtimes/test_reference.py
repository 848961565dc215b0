"""The reference runtime through both adapters: its own, and TensorRT-LLM's under the name `trtllm-serve`."""

import os
import re
import sys
from pathlib import Path

import pytest
import requests

from tests.runtimes.fakes import CONFIG
from trtgate.errors import RuntimeFailedError, UsageError
from trtgate.plans.config import RuntimeConfig
from trtgate.runtimes import runtime_for
from trtgate.runtimes.base import Grids, Launch
from trtgate.runtimes.process import Server, attach, serve
from trtgate.runtimes.stats import Poller
from trtgate.runtimes.tree import is_alive

pytestmark = pytest.mark.timeout(60)  # starts real runtimes

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
SHIM = f'#!/bin/sh\nexec "{sys.executable}" -m trtgate.reference "$@"\n'


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def on_path(tmp_path, monkeypatch) -> None:
    """The reference runtime under the name that TensorRT-LLM's adapter calls."""
    shim = tmp_path / "bin" / "trtllm-serve"
    shim.parent.mkdir()
    shim.write_text(SHIM)
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")


def serving(kind: str, folder: Path, *args: str, config: RuntimeConfig = CONFIG):
    for name, text in runtime_for(kind).render(config, "1.2.0").items():
        (folder / name).write_text(text)
    return serve(
        runtime_for(kind),
        Launch("tiny", "127.0.0.1", 0, config, folder, args, "1.2.0"),
        log_path=folder / "server.log",
        env={},
        progress_deadline_s=60.0,
        stop_deadline_s=10.0,
    )


def answer(server: Server, prompt_tokens: int, output_tokens: int) -> dict[str, object]:
    prompt = [1 + at % 200 for at in range(prompt_tokens)]
    body = {"model": server.model, "prompt": prompt, "max_tokens": output_tokens, "ignore_eos": True}
    return requests.post(f"{server.url}/v1/completions", json=body, timeout=60).json()


def test_reference_captures_what_was_planned_and_reports_each_replay(tmp_path):
    runtime = runtime_for("reference")
    planned, _ = runtime.effective_grids(CONFIG, "1.2.0")
    with serving("reference", tmp_path) as server:
        assert server.captured == planned == attach(server.url).captured
        with Poller(server, runtime, server.captured, CONFIG, tmp_path / "rows.jsonl") as poller:
            answer(server, 20, 4)
            steps = poller.drain()
        assert (poller.warnings, poller.missing_iterations) == ((), 0)
    assert [(step.kind, step.size, step.bucket) for step in steps] == [
        ("tokens", 20, 32),
        *[("decode", 1, 1)] * 3,
    ]
    assert all(step.replayed and not step.predicted and step.step_ms for step in steps)


def test_trtllm_adapter_drives_a_server_of_that_name(on_path, tmp_path):
    runtime = runtime_for("tensorrt-llm")
    with serving("tensorrt-llm", tmp_path) as server:
        assert server.captured == Grids((1, 2, 4, 8), (16, 32))
        assert list(server.phases) == ["process", "warm-up", "capture", "ready"]
        with Poller(server, runtime, server.captured, CONFIG, tmp_path / "rows.jsonl") as poller:
            answer(server, 40, 4)
            steps = poller.drain()
        members = server.members()
    assert [(step.kind, step.size, step.bucket) for step in steps[:2]] == [
        ("tokens", 40, None),
        ("decode", 1, 1),
    ]
    assert steps[0].reason == "above largest bucket"
    assert not [process for process in members if is_alive(process)]


def test_log_lines_of_that_server_are_joined_with_its_rows(on_path, tmp_path):
    runtime = runtime_for("tensorrt-llm")
    with (
        serving("tensorrt-llm", tmp_path) as server,
        Poller(server, runtime, server.captured, CONFIG, tmp_path / "rows.jsonl") as poller,
    ):
        answer(server, 5, 4)
        poller.drain()
    kept = (tmp_path / "rows.jsonl").read_text()
    assert len(re.findall('"log":', kept)) == len(re.findall('"inflightBatchingStats":', kept)) - 1


def test_eager_captures_nothing(tmp_path):
    config = CONFIG.model_copy(update={"target": "eager", "decode_buckets": (), "token_buckets": ()})
    with serving("reference", tmp_path, config=config) as server:
        assert server.captured == Grids()


def test_default_captures_the_runtimes_own_grid(tmp_path):
    config = CONFIG.model_copy(update={"target": "default", "decode_buckets": None, "token_buckets": None})
    with serving("reference", tmp_path, config=config) as server:
        assert server.captured == runtime_for("reference").default_grids(config, "1.2.0")


def test_lack_of_memory_at_capture_is_named_with_its_bucket(tmp_path):
    with pytest.raises(RuntimeFailedError, match="ran out of memory while capturing decode bucket 4"):
        serving("reference", tmp_path, "--fault", "oom-at-capture:4").__enter__()


def test_bucket_that_was_left_out_is_not_captured(tmp_path):
    with serving("reference", tmp_path, "--fault", "skip-capture:4") as server:
        assert server.captured.decode == (1, 2, 8)


def test_refused_configuration_is_the_users_to_change(tmp_path):
    broken = serving("reference", tmp_path)
    with (tmp_path / "config.yaml").open("a") as file:
        file.write("bogus: 1\n")
    with pytest.raises(UsageError, match="Extra inputs are not permitted"):
        broken.__enter__()
