"""A real vLLM on the CPU, driven by its adapter: start, iteration lines, graph table, one answer, failure, stop."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import requests

from trtgate.errors import RuntimeFailedError, UsageError
from trtgate.plans.config import RuntimeConfig
from trtgate.runtimes import runtime_for
from trtgate.runtimes.base import Grids, Launch
from trtgate.runtimes.gauges import read_gauges
from trtgate.runtimes.process import serve
from trtgate.runtimes.ready import new_session
from trtgate.runtimes.stats import Poller
from trtgate.runtimes.tree import is_alive, send

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

CONFIG = RuntimeConfig(
    target="eager",
    decode_buckets=(),
    token_buckets=(),
    max_batch_size=8,
    max_num_tokens=256,
    max_seq_len=256,
)
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 256,
    "vocab_size": 512,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "bos_token_id": 0,
    "eos_token_id": 1,
}
ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_HOST_IP": "127.0.0.1"}
ARGS = ("--load-format", "dummy", "--skip-tokenizer-init", "--dtype", "float32")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A model without weights, with the environment named in `TRTGATE_VLLM` in front of the others."""
    environment = os.environ.get("TRTGATE_VLLM")
    if environment:
        monkeypatch.setenv("PATH", f"{environment}/bin:{os.environ['PATH']}")
    if shutil.which("vllm") is None:
        pytest.fail(
            "no `vllm` found: run `python tests/runtimes/install_vllm.py FOLDER` and set TRTGATE_VLLM=FOLDER"
        )
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(MODEL))
    for name, text in runtime_for("vllm").render(CONFIG, "0.32.0").items():
        (tmp_path / name).write_text(text)
    return tmp_path


def serving(folder: Path, *more: str):
    launch = Launch(str(folder / "model"), "127.0.0.1", 0, CONFIG, folder, (*ARGS, *more), "0.32.0")
    return serve(
        runtime_for("vllm"),
        launch,
        log_path=folder / "server.log",
        env=ENV,
        progress_deadline_s=300.0,
        stop_deadline_s=30.0,
    )


def test_start_steps_answer_and_stop(folder):
    with serving(folder) as server:
        assert server.version == "0.32.0"
        assert server.captured == Grids()
        assert list(server.phases) == ["process", "load", "warm-up", "ready"]
        with Poller(server, runtime_for("vllm"), server.captured, CONFIG, folder / "rows.jsonl") as poller:
            body = {"model": server.model, "prompt": list(range(2, 22)), "max_tokens": 5, "ignore_eos": True}
            answer = requests.post(f"{server.url}/v1/completions", json=body, timeout=60).json()
            assert answer["usage"]["completion_tokens"] == 5
            steps = poller.drain()
        with new_session() as session:
            gauges = read_gauges(session, server.url)
        members = server.members()
    assert [(step.kind, step.size) for step in steps] == [("tokens", 20), *[("decode", 1)] * 4]
    assert all(step.step_ms and step.step_ms > 0 for step in steps)
    assert {(step.replayed, step.predicted) for step in steps} == {(False, False)}
    assert server.limits == {"max_batch_size": 8, "max_num_tokens": 256, "max_seq_len": 256}
    assert {step.kv_tokens for step in steps} == {server.kv_tokens}
    assert gauges is not None
    assert gauges.generation_tokens is not None
    assert gauges.generation_tokens >= 5
    assert len(members) >= 2
    assert not [process for process in members if is_alive(process)]


def test_death_of_the_engine_is_named_and_nothing_is_left(folder):
    with serving(folder) as server:
        for process in server.members():
            if process.pid != server.pid:
                send(process, signal.SIGKILL)
        limit = time.monotonic() + 60
        while server.alive() and time.monotonic() < limit:
            time.sleep(0.1)
        with pytest.raises(RuntimeFailedError, match="while serving"):
            server.raise_if_dead()
        members = server.members()
    assert not [process for process in members if is_alive(process)]


def test_wrong_option_is_the_users_to_change(folder):
    with pytest.raises(UsageError, match="the runtime refused its configuration"):
        serving(folder, "--no-such-option").__enter__()
