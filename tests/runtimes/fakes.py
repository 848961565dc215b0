"""The scripted runtime as an adapter, and short ways to start it."""

import json
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from trtgate.plans.config import RuntimeConfig
from trtgate.runtimes.base import Launch
from trtgate.runtimes.process import OnEvent, Server, serve
from trtgate.runtimes.trtllm import TensorRtLlm

SCRIPT = Path(__file__).with_name("fake_runtime.py")
CONFIG = RuntimeConfig(
    target="tuned",
    decode_buckets=(1, 2, 4, 8),
    token_buckets=(16, 32),
    max_batch_size=8,
    max_num_tokens=64,
    max_seq_len=64,
)
PREFIX = "[01/20/2026-09:10:41] [TRT-LLM] [RANK 0] [I] "
START_LOG = tuple(
    PREFIX + line
    for line in (
        "Creating CUDA graph instances for 2 batch sizes.",
        "Run generation-only CUDA graph warmup for batch size=4, draft_len=0, max_seq_len=4096",
        "Run generation-only CUDA graph warmup for batch size=1, draft_len=0, max_seq_len=4096",
        "Running piecewise CUDA graph warmup...",
        "Run piecewise CUDA graph warmup for num tokens=32",
        "Run piecewise CUDA graph warmup for num tokens=16",
        "Run piecewise CUDA graph warmup for num tokens=32 with most requests",
    )
)


class Fake(TensorRtLlm):
    """TensorRT-LLM's adapter in front of the scripted runtime."""

    kind = "fake"

    def __init__(self, script: Mapping[str, Any]) -> None:
        self.script = dict(script)

    def command(self, launch: Launch) -> list[str]:
        path = launch.folder / "script.json"
        path.write_text(json.dumps(self.script))
        return [sys.executable, str(SCRIPT), str(path), launch.host, str(launch.port)]


def launch_of(folder: Path, *, port: int = 0, model: str = "tiny") -> Launch:
    return Launch(model=model, host="127.0.0.1", port=port, config=CONFIG, folder=folder)


def serving(
    script: Mapping[str, Any],
    folder: Path,
    *,
    port: int = 0,
    env: Mapping[str, str] | None = None,
    progress_deadline_s: float = 30.0,
    stop_deadline_s: float = 5.0,
    on_event: OnEvent | None = None,
) -> AbstractContextManager[Server]:
    return serve(
        Fake(script),
        launch_of(folder, port=port),
        log_path=folder / "server.log",
        env=env or {},
        progress_deadline_s=progress_deadline_s,
        stop_deadline_s=stop_deadline_s,
        on_event=on_event,
    )
