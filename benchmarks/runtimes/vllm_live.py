"""A real vLLM through its adapter: captures, hits by bucket, a lack of memory on purpose, memory back.

`python benchmarks/runtimes/vllm_live.py --model FOLDER --version 0.26.0 --out FILE` with `vllm` on PATH. Further
arguments for the runtime follow `--`. Each part says what it saw even where it is not what was expected.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests

sys.path.insert(0, str(Path(__file__).parents[2]))

from trtgate.errors import TrtgateError
from trtgate.plans.config import RuntimeConfig
from trtgate.runtimes import runtime_for
from trtgate.runtimes.base import Launch
from trtgate.runtimes.devices import used_bytes
from trtgate.runtimes.process import Server, serve
from trtgate.runtimes.stats import Poller

RUNTIME = runtime_for("vllm")
TUNED = RuntimeConfig(
    target="tuned",
    decode_buckets=(1, 2, 4, 8),
    token_buckets=(16, 32, 64),
    max_batch_size=8,
    max_num_tokens=2048,
    max_seq_len=2048,
)
EAGER = TUNED.model_copy(update={"target": "eager", "decode_buckets": (), "token_buckets": ()})
ENV = {"HF_HUB_OFFLINE": "1", "VLLM_HOST_IP": "127.0.0.1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}


def main() -> int:
    """Run the parts asked for and write what they saw."""
    found = argparse.ArgumentParser(description=__doc__)
    found.add_argument("--model", required=True)
    found.add_argument("--version", required=True)
    found.add_argument("--out", type=Path, required=True)
    found.add_argument("--parts", nargs="+", choices=sorted(PARTS), default=list(PARTS))
    found.add_argument("--env", nargs="*", default=[], help="NAME=VALUE for the runtime")
    found.add_argument("args", nargs="*", help="arguments for the runtime, after `--`")
    options = found.parse_args()
    seen: dict[str, Any] = {}
    for name in options.parts:
        seen[name] = PARTS[name](options)
        print(name, json.dumps(seen[name], indent=1))
        options.out.write_text(json.dumps(seen, indent=2) + "\n")
    return 0


def start(
    options: argparse.Namespace, config: RuntimeConfig, use: Callable[[Server], dict[str, Any]]
) -> dict[str, Any]:
    """One start, what `use` saw of it, and the memory before, during and after."""
    env = ENV | dict(pair.split("=", 1) for pair in options.env)
    with tempfile.TemporaryDirectory(prefix="trtgate-live-") as home:
        folder = Path(home)
        for name, text in RUNTIME.render(config, options.version).items():
            (folder / name).write_text(text)
        launch = Launch(options.model, "127.0.0.1", 0, config, folder, tuple(options.args), options.version)
        before = used_bytes()
        began = time.monotonic()
        result: dict[str, Any] = {}
        log = folder / "server.log"
        try:
            with serve(
                RUNTIME, launch, log_path=log, env=env, progress_deadline_s=300.0, stop_deadline_s=30.0
            ) as server:
                result = described(server) | use(server)
                stopping = time.monotonic()
            result["stop_s"] = round(time.monotonic() - stopping, 2)
        except TrtgateError as error:
            result |= {"error": error.message, "hint": error.hint, "exit_code": int(error.exit_code)}
            result["log_tail"] = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
        took = round(time.monotonic() - began, 1)
        return result | {"took_s": took, "device_before": before, "device_after": used_bytes()}


def described(server: Server) -> dict[str, Any]:
    """What the start said about itself."""
    return {
        "version": server.version,
        "phases_ms": {name: round(at) for name, at in server.phases.items()},
        "memory_marks": server.memory_marks,
        "captured": {"decode": server.captured.decode, "tokens": server.captured.tokens},
        "limits": server.limits,
        "kv_tokens": server.kv_tokens,
        "processes": len(server.members()),
        "memory_bytes": server.memory_bytes(),
    }


def visit(config: RuntimeConfig) -> Callable[[Server], dict[str, Any]]:
    """Requests that walk through batch sizes and prompt lengths, and the steps that they made."""

    def use(server: Server) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.jsonl"
            with Poller(server, RUNTIME, server.captured, config, path) as poller:
                with ThreadPoolExecutor(8) as pool:
                    list(pool.map(lambda at: ask(server, 8, 8 * (at + 1), at), range(8)))
                for length in (10, 16, 17, 40, 64, 100):
                    ask(server, length, 1, length)
                steps = poller.drain()
                warnings = poller.warnings
        counts = Counter(
            f"{step.kind} {step.size} -> {step.bucket} {'hit' if step.replayed else step.reason}"
            f"{' (predicted)' if step.predicted else ''}"
            for step in steps
        )
        return {"steps": dict(sorted(counts.items())), "warnings": warnings}

    return use


def ask(server: Server, prompt_tokens: int, output_tokens: int, seed: int) -> None:
    """One request with a prompt of its own."""
    prompt = [5 + (seed * 131 + at * 7) % 400 for at in range(prompt_tokens)]
    body = {"model": server.model, "prompt": prompt, "max_tokens": output_tokens, "ignore_eos": True}
    requests.post(f"{server.url}/v1/completions", json=body, timeout=120).raise_for_status()


def tuned(options: argparse.Namespace) -> dict[str, Any]:
    """Chosen buckets: captured, hit, padded."""
    grids, findings = RUNTIME.effective_grids(TUNED, options.version)
    effective = {"decode": grids.decode, "tokens": grids.tokens}
    return {"effective": effective, "findings": [item.message for item in findings]} | start(
        options, TUNED, visit(TUNED)
    )


def eager(options: argparse.Namespace) -> dict[str, Any]:
    """No graphs at all."""
    return start(options, EAGER, visit(EAGER))


def out_of_memory(options: argparse.Namespace) -> dict[str, Any]:
    """Many large graphs under a fraction that leaves no room for them."""
    update = {
        "token_buckets": tuple(range(64, 8193, 64)),
        "max_num_tokens": 8192,
        "max_seq_len": 8192,
        "kv_memory_fraction": 0.995,
    }
    config = TUNED.model_copy(update=update)
    return start(options, config, lambda _: {"note": "it started, so that nothing was provoked"})


PARTS = {"tuned": tuned, "eager": eager, "out_of_memory": out_of_memory}

if __name__ == "__main__":
    sys.exit(main())
