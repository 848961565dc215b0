"""The reference runtime with `tiny` on a CPU: start, decode steps a second, answers that depend on the prompt alone.

python benchmarks/reference/run.py
"""

import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from trtgate.reference.cache import Cache  # noqa: E402 - the checkout is put on the path first
from trtgate.reference.engine import Engine, Request  # noqa: E402
from trtgate.reference.graphs import Runner  # noqa: E402
from trtgate.reference.model import Decoder  # noqa: E402
from trtgate.reference.settings import Settings, apply_options  # noqa: E402
from trtgate.reference.shapes import BUILT_IN  # noqa: E402

GRAPHS = {
    "cuda_graph_config": {"batch_sizes": [1, 2, 4, 8, 16, 32, 64], "enable_padding": True},
    "torch_compile_config": {"enable_piecewise_cuda_graph": True, "capture_num_tokens": [16, 32, 64, 128]},
}
PROMPTS, ANSWER_TOKENS = 4000, 4


def make_engine(*, requests: int, tokens: int) -> Engine:
    """An engine over `tiny` with a captured grid."""
    settings = Settings("tiny", max_batch_size=requests, max_num_tokens=tokens)
    decoder = Decoder(BUILT_IN["tiny"], torch.float64, torch.device("cpu"), 0, 1024)
    cache = Cache(decoder.shape, requests * 1024, decoder.dtype, decoder.device)
    runner = Runner(decoder, cache, apply_options(settings, dict(GRAPHS)), 1024, lambda *_: None)
    runner.capture()
    return Engine(runner, chunked=True, eos=-1, max_stats=1000)


def start_ms() -> float:
    """From the start of the process to the first 200 of `/health`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begin = time.perf_counter()
    address = f"tiny --host 127.0.0.1 --port {port} --max_batch_size 16 --max_num_tokens 512"
    command = [sys.executable, "-m", "trtgate.reference", *address.split()]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while time.perf_counter() - begin < 60:
            try:
                urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
            except OSError:
                time.sleep(0.02)
            else:
                return 1000 * (time.perf_counter() - begin)
    finally:
        process.terminate()
        process.wait(20)
    raise RuntimeError("the server was not ready in 60 s")


def step_ms(size: int) -> np.ndarray:
    """Times of 200 decode steps of `size` requests, from about 60 tokens of context on."""
    engine = make_engine(requests=64, tokens=2048)
    for number in range(size):
        engine.add(Request(number, np.full(60, number), 201, ignore_eos=True))
    while engine.busy:
        engine.step()
    return np.array([row.host_ms for row in engine.rows if row.use.kind == "decode"])


def answers(engine: Engine, prompts: list[np.ndarray], *, eager: bool) -> list[list[int]]:
    """The tokens of every prompt, all being queued at once."""
    found: list[list[int]] = [[] for _ in prompts]
    for number, prompt in enumerate(prompts):
        engine.add(Request(number, prompt, ANSWER_TOKENS, ignore_eos=True))
    while engine.busy:
        for answer in engine.step(eager=eager):
            found[answer.id].append(answer.token)
    return found


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    starts = [start_ms() for _ in range(5)]
    print(f"start to /health 200, 5 starts: median {np.median(starts):.0f} ms, worst {max(starts):.0f} ms")
    for size in (1, 8, 16, 64):
        times = step_ms(size)
        middle, low, high = np.quantile(times, (0.5, 0.05, 0.95))
        print(
            f"decode batch {size:2}: {middle:.2f} ms ({low:.2f} to {high:.2f}), {1000 / middle:.0f} steps/s"
        )
    random = np.random.default_rng(0)
    prompts = [random.integers(0, 256, size) for size in random.integers(1, 80, PROMPTS)]
    alone = answers(make_engine(requests=1, tokens=128), prompts, eager=True)
    for requests, tokens in ((13, 48), (64, 2048)):
        same = sum(
            map(
                list.__eq__,
                alone,
                answers(make_engine(requests=requests, tokens=tokens), prompts, eager=False),
            )
        )
        print(
            f"{same} of {PROMPTS} answers as alone and eager: batches of {requests}, iterations of {tokens} tokens"
        )


if __name__ == "__main__":
    main()
