"""How fast the log and the statistics of a runtime are read: `python benchmarks/runtimes/reading.py`."""

import os
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.runtimes.fakes import CONFIG
from trtgate.runtimes import runtime_for
from trtgate.runtimes.base import Grids
from trtgate.runtimes.output import Output

COUNT = 100_000
GRIDS = Grids((1, 2, 4, 8, 16, 32), (64, 128, 256))
TRTLLM_LINE = (
    "[01/20/2026-09:14:03] [TRT-LLM] [RANK 0] [I] iter = {0}, global_rank = 0, rank = 0, currank_total_requests = "
    "13/13, host_step_time = 7.412004ms, prev_device_step_time = 7.155712ms, timestamp = 2026-01-20 09:14:03, "
    "num_scheduled_requests: 13, states = {{'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 16}}"
)
VLLM_LINE = (
    "(APIServer pid=1) INFO 11-29 15:04:50 [loggers.py:199] Engine 000: Iteration({0}): 0 context requests, 0 context "
    "tokens, 3 generation requests, 3 generation tokens, iteration elapsed time: 8.19 ms, GPU KV cache usage: 0.1%"
)


def main() -> None:
    """Print lines or rows a second on one core."""
    for kind, line in (("tensorrt-llm", TRTLLM_LINE), ("vllm", VLLM_LINE)):
        lines = [line.format(number) for number in range(COUNT)]
        show(f"{kind}: lines followed", follow(kind, lines))
        show(f"{kind}: iteration lines read", timed(lambda k=kind, x=lines: runtime_for(k).rows(x)))
    row = {
        "iter": 1,
        "inflightBatchingStats": {"numContextRequests": 0, "numGenRequests": 13, "numCtxTokens": 0},
        "kvCacheStats": {"maxNumBlocks": 8120, "usedNumBlocks": 89, "tokensPerBlock": 32},
    }
    rows = [{**row, "iter": number} for number in range(COUNT)]
    show("tensorrt-llm: rows to steps", timed(lambda: runtime_for("tensorrt-llm").steps(rows, GRIDS, CONFIG)))


def follow(kind: str, lines: list[str]) -> float:
    """Seconds to take lines from a pipe to disk, with their stages looked for."""
    source, sink = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        runtime = runtime_for(kind)
        began = time.perf_counter()
        output = Output(
            source, Path(folder) / "log", ("secret value",), lambda line: runtime.phase(line) and None
        )
        data = "\n".join(lines).encode() + b"\n"

        def write() -> None:
            with os.fdopen(sink, "wb") as pipe:
                pipe.write(data)

        writer = threading.Thread(target=write)
        writer.start()
        writer.join()
        output.join(60.0)
        return time.perf_counter() - began


def timed(work: object) -> float:
    """Seconds that a function takes."""
    began = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - began


def show(name: str, seconds: float) -> None:
    """One line of the table."""
    print(f"{name:40} {COUNT / seconds:12,.0f} a second {seconds / COUNT * 1e6:8.1f} us each")


if __name__ == "__main__":
    main()
