import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
import yaml

OPTIONS: dict[str, Any] = {
    "max_batch_size": 16,
    "max_num_tokens": 128,
    "max_seq_len": 4096,
    "enable_chunked_prefill": True,
    "enable_iter_perf_stats": True,
    "print_iter_log": True,
    "cuda_graph_config": {"enable_padding": True, "batch_sizes": [1, 2, 4, 8]},
    "torch_compile_config": {"enable_piecewise_cuda_graph": True, "capture_num_tokens": [16, 32, 64]},
}


@dataclass
class Server:
    process: subprocess.Popen[str]

    def __post_init__(self) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()

    @cached_property
    def url(self) -> str:
        """Where it listens: the system chose the port, so that none need be free."""
        found = psutil.Process(self.process.pid).net_connections("tcp")
        (port,) = {socket.laddr.port for socket in found if socket.status == psutil.CONN_LISTEN}
        return f"http://127.0.0.1:{port}"

    def wait_for(self, mark: str) -> None:
        with self._changed:
            seen = self._changed.wait_for(lambda: any(mark in line for line in self.lines), timeout=60)
        assert seen, "".join(self.lines)

    def output(self) -> str:
        """Everything printed, once the process has closed its output."""
        self._reader.join(60)
        assert not self._reader.is_alive()
        return "".join(self.lines)

    def get(self, path: str) -> Any:
        return requests.get(self.url + path, timeout=20).json()

    def complete(self, **body: Any) -> requests.Response:
        return requests.post(f"{self.url}/v1/completions", json=body, timeout=20)

    def tokens(self, prompt: list[int], count: int = 8) -> list[int]:
        answer = self.complete(prompt=prompt, max_tokens=count, ignore_eos=True, return_token_ids=True)
        return answer.json()["choices"][0]["token_ids"]


@pytest.fixture
def options() -> dict[str, Any]:
    return OPTIONS


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Start `python -m trtgate.reference`; ends what it started when the module's tests are over."""
    started: list[Server] = []

    def start(*flags: str, options: dict[str, Any] = OPTIONS, port: int = 0, model: str = "tiny") -> Server:
        path = Path(tmp_path_factory.mktemp("reference")) / "options.yaml"
        path.write_text(yaml.safe_dump(options))
        command = [sys.executable, "-m", "trtgate.reference", "serve", model, "--host", "127.0.0.1"]
        process = subprocess.Popen(
            [*command, "--port", str(port), "--config", str(path), *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        started.append(Server(process))
        return started[-1]

    yield start
    for server in started:
        server.process.kill()
        server.process.wait(20)
        server.output()
        server.process.stdout.close()


@pytest.fixture(scope="module")
def server(launch: Callable[..., Server]) -> Server:
    ready = launch()
    ready.wait_for("Application startup complete.")
    return ready
