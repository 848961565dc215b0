"""The reference runtime on a GPU: is it right, how fast is a replay, what does the server add, what do grids cost.

    python benchmarks/gpu/reference.py --out reference.json          # 1b on a GPU, under four minutes
    python benchmarks/gpu/reference.py --model tiny --out /tmp/r.json  # a dry run anywhere

Each section stands alone: one that fails is printed as such and the others run. The table comes last.
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from trtgate.reference.cache import Cache  # noqa: E402 - the checkout is put on the path first
from trtgate.reference.engine import Engine, Request  # noqa: E402
from trtgate.reference.graphs import Runner  # noqa: E402
from trtgate.reference.model import Decoder, choose_dtype  # noqa: E402
from trtgate.reference.settings import Settings, apply_options  # noqa: E402
from trtgate.reference.shapes import BUILT_IN  # noqa: E402
from trtgate.reference.worker import build  # noqa: E402

MAX_SEQ_LEN = 2048
DECODE = [1, 2, 4, 8, 16, 32, 64]
TOKENS = [64, 128, 256, 512, 1024, 2048]
GRAPHS: dict[str, Any] = {
    "cuda_graph_config": {"batch_sizes": DECODE, "enable_padding": True},
    "torch_compile_config": {"enable_piecewise_cuda_graph": True, "capture_num_tokens": TOKENS},
}
EAGER: dict[str, Any] = {"cuda_graph_config": None}
Rows = list[dict[str, Any]]


@dataclass
class Bench:
    """What the sections share: device, model, how often to repeat."""

    model: str
    device: torch.device
    repeat: int
    decoders: dict[tuple[str, str], Decoder]

    def decoder(self, model: str, dtype: str) -> Decoder:
        """A decoder with random weights, made once."""
        key = model, dtype
        if key not in self.decoders:
            kind = choose_dtype(dtype, self.device)
            self.decoders[key] = Decoder(BUILT_IN[model], kind, self.device, 0, MAX_SEQ_LEN)
        return self.decoders[key]

    def runner(
        self, decoder: Decoder, options: dict[str, Any], *, requests: int = 64, tokens: int = 2048
    ) -> Runner:
        """A runner with 1,024 tokens of cache a request and everything captured."""
        settings = apply_options(
            Settings(self.model, max_batch_size=requests, max_num_tokens=tokens), options
        )
        cache = Cache(decoder.shape, requests * 1024, decoder.dtype, self.device)
        runner = Runner(decoder, cache, settings, MAX_SEQ_LEN, lambda *_: None)
        runner.capture()
        return runner

    def synchronize(self) -> None:
        """Wait for the device, where it has to be waited for."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()


Answers = list[tuple[list[int], list[float]]]


def ask(
    runner: Runner, prompts: list[np.ndarray], count: int, *, together: bool, eager: bool = False
) -> Answers:
    """Greedy tokens and log-probabilities of each prompt, all in one batch or each alone."""
    result: Answers = [([], []) for _ in prompts]
    for group in [range(len(prompts))] if together else [[index] for index in range(len(prompts))]:
        engine = Engine(runner, chunked=True, eos=-1)
        for index in group:
            engine.add(Request(index, prompts[index], count, ignore_eos=True))
        while engine.busy:
            for answer in engine.step(eager=eager):
                result[answer.id][0].append(answer.token)
                result[answer.id][1].append(answer.logprob)
    return result


def compare(name: str, expected: Answers, found: Answers) -> dict[str, Any]:
    """How far two sets of answers agree: log-probabilities are compared up to where the tokens part."""
    same, first, differences, parted_at = 0, [], [], []
    for (tokens, scores), (others, other_scores) in zip(expected, found, strict=True):
        equal = next(
            (i for i, pair in enumerate(zip(tokens, others, strict=True)) if pair[0] != pair[1]), len(tokens)
        )
        same += equal == len(tokens)
        parted_at += [equal] if equal < len(tokens) else []
        pairs = list(zip(scores, other_scores, strict=True))[: equal + 1]
        first.append(abs(pairs[0][0] - pairs[0][1]))
        differences += [abs(one - other) for one, other in pairs]
    return {
        "what": name,
        "answers": len(expected),
        "identical": same,
        "first_token_logprob_diff_max": max(first),
        "logprob_diff_mean": statistics.fmean(differences),
        "logprob_diff_max": max(differences),
        "parted_at_median": statistics.median(parted_at) if parted_at else None,
    }


def correctness(bench: Bench, model: str, dtype: str, prompts_count: int, count: int) -> Rows:
    """Each prompt alone and eager against replayed, padded, batched and chunked."""
    decoder, random = bench.decoder(model, dtype), np.random.default_rng(1)
    prompts = [random.integers(0, 256, size) for size in random.integers(1, 600, prompts_count)]
    runner = bench.runner(decoder, GRAPHS)
    expected = ask(runner, prompts, count, together=False, eager=True)
    chunked = bench.runner(decoder, GRAPHS, tokens=100)
    label = f"{model} {str(decoder.dtype).removeprefix('torch.')}"
    label += f" {'flash' if runner.cache.flash else 'portable'}:"
    return [
        compare(f"{label} eager again", expected, ask(runner, prompts, count, together=False, eager=True)),
        compare(f"{label} replayed alone", expected, ask(runner, prompts, count, together=False)),
        compare(f"{label} replayed in a padded batch", expected, ask(runner, prompts, count, together=True)),
        compare(
            f"{label} eager in a batch", expected, ask(runner, prompts, count, together=True, eager=True)
        ),
        compare(f"{label} replayed in chunks of 100", expected, ask(chunked, prompts, count, together=True)),
    ]


def timed(bench: Bench, function: Callable[[], object], repeat: int) -> float:
    """Milliseconds a call, after three calls that warm up."""
    for _ in range(3):
        function()
    bench.synchronize()
    begin = time.perf_counter()
    for _ in range(repeat):
        function()
    bench.synchronize()
    return 1000 * (time.perf_counter() - begin) / repeat


def decode(bench: Bench) -> Rows:
    """A bare loop of replays against launch-and-wait, the engine's step, and eager, at 512 tokens of context."""
    from trtgate.reference.steps import Batch

    decoder, rows = bench.decoder(bench.model, "auto"), []
    runner = bench.runner(decoder, GRAPHS)
    for size in (1, 8, 64):
        batch = Batch([(7, 512, 1024 * index) for index in range(size)])

        def step(*, eager: bool = False, batch: Batch = batch, size: int = size) -> None:
            runner.launch(batch, eager=eager)
            runner.wait(size)

        step()
        (replay,) = runner.captured["decode"].replays[size]
        with torch.inference_mode():
            bare = timed(bench, replay, bench.repeat)
        whole = timed(bench, step, bench.repeat)
        eager = timed(bench, lambda step=step: step(eager=True), max(5, bench.repeat // 6))
        engine = Engine(runner, chunked=True, eos=-1)
        for index in range(size):
            engine.add(Request(index, np.full(500, index), 3 + bench.repeat, ignore_eos=True))
        while any(request.computed < 500 for request in engine.running) or engine.waiting:
            engine.step()
        stepping = timed(bench, engine.step, bench.repeat // 2)
        rows.append(
            {"batch": size, "bare_replay_ms": bare, "launch_and_wait_ms": whole, "engine_step_ms": stepping}
        )
        rows[-1] |= {"eager_ms": eager, "engine_to_bare": stepping / bare, "eager_to_bare": eager / bare}
    return rows


def tokens(bench: Bench) -> Rows:
    """One prompt a step: replay of piecewise graphs against eager, exact and one above a bucket."""
    from trtgate.reference.steps import Batch, Chunk

    runner, rows = bench.runner(bench.decoder(bench.model, "auto"), GRAPHS), []
    for size in (64, 65, 128, 256, 257, 512, 513, 1024, 1025, 2048):
        batch = Batch([], [Chunk(np.zeros(size, np.int64), 0, 0, last=True)])

        def step(*, eager: bool, batch: Batch = batch) -> None:
            runner.launch(batch, eager=eager)
            runner.wait(1)

        repeat = max(5, bench.repeat // 10)
        replayed = timed(bench, lambda step=step: step(eager=False), repeat)
        eager = timed(bench, lambda step=step: step(eager=True), repeat)
        bucket = runner.use("tokens", size).bucket
        rows.append({"tokens": size, "bucket": bucket, "replay_ms": replayed, "eager_ms": eager})
    return rows


def memory(bench: Bench) -> Rows:
    """What grids hold and what is left for the KV cache, everything else equal."""
    bench.decoders.clear()
    grids: dict[str, dict[str, Any]] = {
        "no graphs": EAGER,
        "decode 1..64 in 7": {"cuda_graph_config": GRAPHS["cuda_graph_config"]},
        "decode default (19 to 128)": {"cuda_graph_config": {"enable_padding": True}},
        "tokens 6 to 2048": {**EAGER, "torch_compile_config": GRAPHS["torch_compile_config"]},
        "tokens default (20 to 3072)": {
            **EAGER,
            "torch_compile_config": {"enable_piecewise_cuda_graph": True},
        },
    }
    rows = []
    for name, options in grids.items():
        gc.collect()
        torch.cuda.empty_cache()
        settings = Settings(bench.model, max_batch_size=128, max_num_tokens=4096, max_seq_len=4096)
        begin = time.perf_counter()
        engine, info = build(apply_options(settings, options), lambda *_: None)
        took = time.perf_counter() - begin
        del engine
        rows.append(
            {"grid": name, "graph_mib": info["graph_memory_bytes"] / 2**20, "kv_tokens": info["kv_tokens"]}
        )
        held = {kind: info[kind]["memory_bytes"] for kind in ("decode", "tokens")}
        spent = sum(sum(info[kind]["capture_ms"].values()) for kind in ("decode", "tokens"))
        rows[-1] |= {
            "capture_s": spent / 1000,
            "build_s": took,
            "memory_bytes": held,
            "attention": info["attention"],
        }
        rows[-1]["kv_tokens_lost"] = rows[0]["kv_tokens"] - info["kv_tokens"]
    return rows


async def stream(port: int, prompt: list[int], count: int) -> tuple[int, list[float]]:
    """One streamed completion over a plain connection: tokens received, and the times of what arrived."""
    body = {
        "prompt": prompt,
        "max_tokens": count,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
    }
    text = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(text)}\r\n\r\n"
    writer.write(head.encode() + text)
    received, times = 0, []
    while data := await reader.read(1 << 16):
        received += data.count(b'"token_ids"')
        times.append(time.perf_counter())
    writer.close()
    return received, times


async def streams(port: int, size: int, count: int) -> list[tuple[int, list[float]]]:
    """`size` completions at once."""
    return await asyncio.gather(*(stream(port, [index % 256] * 400, count) for index in range(size)))


def server(bench: Bench, bare_ms: dict[int, float]) -> Rows:
    """Wall time a decode step in the served engine, by its statistics, with every token streamed over HTTP."""
    options = {**GRAPHS, "max_batch_size": 64, "max_num_tokens": 2048, "max_seq_len": MAX_SEQ_LEN}
    options |= {"enable_chunked_prefill": True, "enable_iter_perf_stats": True, "max_stats_len": 100000}
    with tempfile.TemporaryDirectory() as folder:
        path, port = Path(folder) / "options.yaml", 18765
        path.write_text(json.dumps(options))
        address = f"--host 127.0.0.1 --port {port} --config {path} --die-with-parent {os.getpid()}"
        command = [sys.executable, "-m", "trtgate.reference", bench.model, *address.split()]
        begin = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        with (Path(folder) / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            wait_ready(process, port, Path(folder) / "log")
            ready_s = time.perf_counter() - begin
            return [served(port, size, 2 * bench.repeat, ready_s, bare_ms) for size in (1, 8, 64)]
        finally:
            process.terminate()
            process.wait(30)


def wait_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Return when `/health` answers; RuntimeError with the log's end when it never does."""
    for _ in range(900):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}:\n{log.read_text()[-3000:]}")
        try:
            urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"the server was not ready in 90 s:\n{log.read_text()[-3000:]}")


def served(port: int, size: int, count: int, ready_s: float, bare_ms: dict[int, float]) -> dict[str, Any]:
    """One row: a short round that warms up, then `count` tokens on each of `size` streams."""
    for round_count in (8, count):
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=9).read()
        begin = time.perf_counter()
        answers = asyncio.run(streams(port, size, round_count))
        took = time.perf_counter() - begin
    rows = json.loads(urlopen(f"http://127.0.0.1:{port}/metrics", timeout=9).read())
    full = [row for row in rows if row["graph"]["kind"] == "decode" and row["graph"]["size"] == size]
    at = {row["iter"]: datetime.strptime(row["timestamp"], "%m-%d-%Y %H:%M:%S.%f") for row in full}
    walls = [1000 * (at[number] - at[number - 1]).total_seconds() for number in at if number - 1 in at]
    gaps = [1000 * (b - a) for _, times in answers for a, b in pairwise(times[1:])]
    if not walls or not gaps:
        raise RuntimeError(f"no two decode steps of {size} in a row: ask for more tokens with `--repeat`")
    wall, bare = statistics.median(walls), bare_ms.get(size)
    return {
        "batch": size,
        "tokens_lost": size * count - sum(received for received, _ in answers),
        "ready_s": ready_s,
        "wall_step_ms": wall,
        "wall_step_p99_ms": float(np.quantile(walls, 0.99)),
        "host_step_ms": statistics.median(row["hostStepTimeMS"] for row in full),
        "device_step_ms": statistics.median(row["gpuForwardTimeMS"] for row in full),
        "client_gap_p50_ms": statistics.median(gaps),
        "client_gap_p99_ms": float(np.quantile(gaps, 0.99)),
        "tokens_per_s": size * count / took,
        "added_to_bare_ms": wall - bare if bare else None,
        "wall_to_bare": wall / bare if bare else None,
        "all_replayed": all(row["graph"]["replayed"] for row in full),
    }


def show(title: str, rows: Rows) -> None:
    """Print rows as a table."""
    print(f"\n{title}")
    shown = [
        {name: text(value) for name, value in row.items() if not isinstance(value, dict)} for row in rows
    ]
    widths = {name: max(len(name), *(len(row.get(name, "")) for row in shown)) for name in shown[0]}
    print("  ".join(name.rjust(width) for name, width in widths.items()))
    for row in shown:
        print("  ".join(row.get(name, "").rjust(width) for name, width in widths.items()))


def text(value: object) -> str:
    """A value as a table shows it."""
    if isinstance(value, float):
        return f"{value:.2e}" if 0 < abs(value) < 0.01 else f"{value:.3f}"
    return "-" if value is None else str(value)


def main() -> int:
    """Run every section, print the tables, return 1 where a section failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON file, written anew after every section")
    parser.add_argument("--model", choices=sorted(BUILT_IN), default="1b")
    parser.add_argument("--repeat", type=int, default=200)
    parser.add_argument(
        "--deadline_s", type=float, default=230, help="sections that would begin later are left out"
    )
    given = parser.parse_args()
    begin = time.perf_counter()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)
    bench = Bench(given.model, device, given.repeat, {})
    bare: dict[int, float] = {}

    def decode_section() -> Rows:
        rows = decode(bench)
        bare.update({row["batch"]: row["bare_replay_ms"] for row in rows})
        return rows

    sections: dict[str, Callable[[], Rows]] = {
        "decode: ms a step, context 512": decode_section,
        "right, tiny float64: must be identical": lambda: correctness(bench, "tiny", "float64", 24, 24),
        f"right, {given.model}: log-probability differences": lambda: correctness(
            bench, given.model, "auto", 13, 24
        ),
        "tokens: ms a step of one prompt": lambda: tokens(bench),
        "server: every token streamed": lambda: server(bench, bare),
        "memory: graphs against KV tokens": lambda: memory(bench),
    }
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "command": sys.argv,
        "sections": {},
        "failed": {},
        "seconds": {},
    }
    for title, section in sections.items():
        at = time.perf_counter()
        print(f"... {title}", flush=True)
        try:
            if at - begin > given.deadline_s:
                raise TimeoutError(f"left out: {given.deadline_s} s are over")
            result["sections"][title] = section()
        except Exception as error:  # noqa: BLE001 - one section must not cost the others
            traceback.print_exc()
            result["failed"][title] = repr(error)
        result["seconds"][title] = time.perf_counter() - at
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\n{result['device']}, torch {result['torch']}, {time.perf_counter() - begin:.0f} s")
    for title, rows in result["sections"].items():
        show(title, rows)
    for title, error in result["failed"].items():
        print(f"\nFAILED {title}: {error}")
    return int(bool(result["failed"]))


if __name__ == "__main__":
    sys.exit(main())
