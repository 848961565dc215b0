"""One client of the benchmark in a process of its own; prints what it measured and what it cost."""

import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def trtgate(url: str, path: str, streams: int, rounds: int, tokens: int) -> dict[str, object]:
    """The client of this package: `streams` users in a closed loop."""
    from trtgate.loads.arrivals import closed_loop
    from trtgate.loads.base import Ask, Target
    from trtgate.loads.run import run_load

    prompt = "hello" if "chat" in path else (1, 2, 3)
    asks = closed_loop([Ask(0.0, prompt, tokens)] * (streams * rounds), streams)
    before_s, start_ns = time.process_time(), time.monotonic_ns()
    result = run_load(Target(url, "oracle", path), asks, timeout_s=120.0)
    cpu_s = time.process_time() - before_s
    memory = memory_mb()

    from dataclasses import asdict

    from trtgate.loads.metrics import samples

    got = samples(result)
    return {
        "ttft": got["ttft_from_send_ms"],
        "itl": got["itl_ms"],
        "first_ns": start_ns + result.answers[0].sent_s * 1e9,
        "duration_s": result.duration_s,
        "tokens": sum(answer.tokens for answer in result.answers),
        "failed": sum(not answer.ok for answer in result.answers),
        "cpu_s": cpu_s,
        **memory,
        **{f"bar_{name}": value for name, value in asdict(result.instrument).items()},
    }


def vllm_bench(file: str, url: str, path: str, sizes: tuple[int, int, int]) -> dict[str, object]:
    """The request function of vLLM's benchmark (its file is given), as its own loop calls it."""
    import asyncio

    import aiohttp
    import numpy as np

    streams, rounds, tokens = sizes
    spec = importlib.util.spec_from_file_location("endpoint_request_func", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    chat = "chat" in path
    ask = module.async_request_openai_chat_completions if chat else module.async_request_openai_completions
    first_ns: list[int] = []

    async def one(limit: asyncio.Semaphore, session: aiohttp.ClientSession) -> object:
        async with limit:
            first_ns.append(time.monotonic_ns())
            wish = module.RequestFuncInput(
                prompt="hello",
                api_url=url + path,
                prompt_len=1,
                output_len=tokens,
                model="oracle",
                ignore_eos=True,
            )
            return await ask(wish, session)

    async def all_of_them() -> list[object]:
        connector = aiohttp.TCPConnector(limit=streams, limit_per_host=streams, force_close=False)
        timeout = aiohttp.ClientTimeout(total=6 * 60 * 60)
        limit = asyncio.Semaphore(streams)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            return await asyncio.gather(*(one(limit, session) for _ in range(streams * rounds)))

    before_s, start_s = time.process_time(), time.monotonic()
    outputs = asyncio.run(all_of_them())
    done = [output for output in outputs if output.success]
    return {
        "ttft": np.array([output.ttft for output in done]) * 1e3,
        "itl": np.concatenate([np.array(output.itl) for output in done]) * 1e3,
        "first_ns": first_ns[0],
        "duration_s": time.monotonic() - start_s,
        "tokens": sum(output.output_tokens for output in done),
        "failed": len(outputs) - len(done),
        "cpu_s": time.process_time() - before_s,
        **memory_mb(),
    }


def aiperf(
    places: str, url: str, path: str, sizes: tuple[int, int, int], spawned_ns: int
) -> dict[str, object]:
    """NVIDIA's aiperf with one worker; `places` are its command and a folder with a tokenizer, joined by a comma."""
    streams, rounds, tokens = sizes
    command, tokenizer = places.split(",")
    with tempfile.TemporaryDirectory() as folder:
        words = [command, "profile", "--model-names", "oracle", "--url", url, "--streaming", "--ui", "none"]
        words += ["--endpoint-type", "chat" if "chat" in path else "completions", "--tokenizer", tokenizer]
        words += [
            "--concurrency",
            str(streams),
            "--request-count",
            str(streams * rounds),
            "--workers-max",
            "1",
        ]
        words += ["--synthetic-input-tokens-mean", "3", "--output-tokens-mean", str(tokens)]
        words += ["--use-server-token-count", "--artifact-dir", folder]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=280)
        done = json.loads((Path(folder) / "profile_export_aiperf.json").read_text())
        lines = (Path(folder) / "profile_export.jsonl").read_text().splitlines()
    starts = [json.loads(line)["metadata"]["request_start_ns"] for line in lines]
    offset_ns = time.time_ns() - time.monotonic_ns()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = tokens * streams * rounds
    return {
        **{f"ttft_p{place}": done["time_to_first_token"][f"p{place}"] for place in (50, 99)},
        **{f"itl_p{place}": done["inter_chunk_latency"][f"p{place}"] for place in (50, 99)},
        "tokens_per_s": done["output_token_throughput"]["avg"],
        "tokens": total,
        "failed": streams * rounds - done["request_count"]["avg"],
        "cpu_us_token": (used.ru_utime + used.ru_stime) / total * 1e6,
        "pss_mb": float("nan"),
        "peak_mb": float("nan"),
        "first_s": (min(starts) - offset_ns - spawned_ns) / 1e9,
    }


def memory_mb() -> dict[str, float]:
    """Memory of this process in MB: proportional share now, and the most resident so far."""
    lines = Path("/proc/self/smaps_rollup").read_text() + Path("/proc/self/status").read_text()
    kilobytes = {
        name: int(line.split()[1])
        for line in lines.splitlines()
        for name in ("Pss:", "VmHWM:")
        if line.startswith(name)
    }
    return {"pss_mb": kilobytes["Pss:"] / 1024, "peak_mb": kilobytes["VmHWM:"] / 1024}


def main() -> None:
    """Run the client named first; the last argument is when this process was started."""
    client, url, path, streams, rounds, tokens, spawned_ns = sys.argv[1:]
    name, _, file = client.partition("=")
    sizes = int(streams), int(rounds), int(tokens)
    if name == "aiperf":
        print(json.dumps(aiperf(file, url, path, sizes, int(spawned_ns))))
        return
    got = trtgate(url, path, *sizes) if name == "trtgate" else vllm_bench(file, url, path, sizes)

    from trtgate.loads.metrics import quantile

    for metric in ("ttft", "itl"):
        values = got.pop(metric)
        got |= {f"{metric}_p{place}": quantile(values, place / 100) for place in (50, 99)}
    got["tokens_per_s"] = got["tokens"] / got["duration_s"]
    got["cpu_us_token"] = got["cpu_s"] / got["tokens"] * 1e6
    got["first_s"] = (got.pop("first_ns") - int(spawned_ns)) / 1e9
    print(json.dumps(got))


if __name__ == "__main__":
    main()
