"""Speed of the simulation and of the grid choice, and what grids cost on the Azure traces; prints Markdown.

    python benchmarks/plans/run.py speed --traces FOLDER
    python benchmarks/plans/run.py show --traces FOLDER

FOLDER holds the two public files AzureLLMInferenceTrace_code.csv and AzureLLMInferenceTrace_conv.csv.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from h200 import h200_costs

from trtgate.plans.arrays import Problem
from trtgate.plans.budget import KvBudget
from trtgate.plans.grid import Constraints, GridRow, choose_grid
from trtgate.plans.histogram import Bins, Histogram, Kind, Limits
from trtgate.plans.kernels import best_grids
from trtgate.plans.simulate import simulate
from trtgate.traces import read_trace
from trtgate.traces.base import Trace

T = TypeVar("T")
LIMITS = Limits(max_batch_size=256, max_num_tokens=8192, max_seq_len=16384)
KINDS: tuple[Kind, ...] = ("decode", "tokens")
COUNTS = (4, 8, 12, 16, 24)
BY_EIGHT = (1, 2, 4, *range(8, 129, 8))
TRTLLM_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, *range(512, 3073, 256))
VLLM = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))  # vLLM 0.26 at 256 sequences
DEFAULTS = {
    "decode": {"TensorRT-LLM 1.2 default": (*BY_EIGHT, 256), "vLLM 0.26 default": VLLM[:35]},
    "tokens": {"TensorRT-LLM 1.2 default": TRTLLM_TOKENS, "vLLM 0.26 default": VLLM},
}
SIMULATE_FIRST = """
import time
from tests.plans.samples import costs, trace
from trtgate.plans.simulate import Limits, simulate
simulate(trace([0], [4], [2]), Limits(max_batch_size=4, max_num_tokens=16, max_seq_len=64), costs())
print(time.process_time())
"""


def main() -> None:
    """Read the traces and print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("speed", "show"))
    parser.add_argument("--traces", type=Path, required=True)
    options = parser.parse_args()
    traces = {
        name: read_trace(options.traces / f"AzureLLMInferenceTrace_{name}.csv") for name in ("code", "conv")
    }
    if options.what == "speed":
        speed_of_simulation(traces["conv"])
        speed_of_choice(8192, 64)
        speed_of_choice(131072, 128)
    else:
        show(traces)


def speed_of_simulation(trace: Trace, copies: int = 50) -> None:
    """Requests a second for the trace put end to end `copies` times, at four loads."""
    longer = tiled(trace, copies)
    with tempfile.TemporaryDirectory() as empty:
        cold_s, warm_s = first_call_s(empty), first_call_s(empty)
    print(f"first call in a new process, imports included: {cold_s:.1f} s, {warm_s:.1f} s once compiled\n")
    print("| speed-up | requests | steps | processor s | million requests/s | million steps/s |")
    print("|---|---|---|---|---|---|")
    for speed_up in (1.0, 2.0, 4.0, 8.0):
        seconds, histogram = best_of(5, partial(simulate, longer, LIMITS, h200_costs(), speed_up=speed_up))
        steps = histogram.decode.total + histogram.tokens.total
        rate, step_rate = len(longer) / seconds / 1e6, steps / seconds / 1e6
        print(f"| {speed_up:g} | {len(longer)} | {steps} | {seconds:.3f} | {rate:.1f} | {step_rate:.1f} |")


def first_call_s(cache: str) -> float:
    """Processor seconds to the end of a first small simulation in a new process; `cache` keeps compiled code."""
    call = (sys.executable, "-c", SIMULATE_FIRST)
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    return float(subprocess.run(call, check=True, capture_output=True, env=environment).stdout)


def speed_of_choice(sizes: int, most: int) -> None:
    """Milliseconds for all k up to `most`: the exact choice alone, and with the table around it."""
    costs = h200_costs()
    counts = np.random.default_rng(1).integers(1, 1000, sizes + 1)
    every = np.arange(sizes + 1)
    eager_ns = np.cumsum(counts * np.rint(costs.token_eager.at(every) * 1e6).astype(np.int64))
    problem = Problem(
        running_steps=np.cumsum(counts),
        replay=np.rint(costs.token_replay.at(every) * 1e6).astype(np.int64),
        above=eager_ns[-1] - eager_ns,
        pinned=np.zeros(sizes + 1, np.bool_),
        furthest=np.full(most + 1, sizes),
        rising=True,
    )
    table = partial(
        choose_grid,
        "tokens",
        Bins.from_counts(counts),
        None,
        costs.token_replay,
        costs.token_eager,
        Constraints(max_graphs=most, ceiling=sizes),
        memory=costs.token_graph_bytes,
        capture_s=costs.token_capture_s,
    )
    rising_s, _ = best_of(9, partial(best_grids, problem))
    other_s, _ = best_of(5, partial(best_grids, problem._replace(rising=False)))
    table_s, _ = best_of(9, table)
    print(
        f"\n{sizes} sizes, all k up to {most}: exact choice {rising_s * 1e3:.1f} ms "
        f"({other_s * 1e3:.1f} ms where the curve may fall), with the whole table {table_s * 1e3:.1f} ms"
    )


def show(traces: dict[str, Trace]) -> None:
    """Expected step time, padding and graphs of the optimum at several K and of fixed grids."""
    costs = h200_costs()
    for name, trace in traces.items():
        fit, later = trace.split(0.7)
        kv = KvBudget(
            shared_bytes=100 << 30,
            kv_bytes_per_token=costs.kv_bytes_per_token,
            tokens_per_sequence=float((trace.prompt_tokens + trace.output_tokens).mean()),
        )
        for speed_up in (1.0, 4.0):
            histograms = [simulate(part, LIMITS, costs, speed_up=speed_up) for part in (fit, later)]
            for kind in KINDS:
                heading(f"{name}, {speed_up:g}x", kind, histograms[0])
                for row in rows(kind, histograms[0].bins(kind), histograms[1].bins(kind), kv):
                    print(line(row))


def rows(kind: Kind, fit: Bins, later: Bins, kv: KvBudget) -> list[GridRow]:
    """The optimum at each of `COUNTS`, the one within 1 % of the best, and the fixed grids."""
    costs = h200_costs()
    decode = kind == "decode"
    plan = choose_grid(
        kind,
        fit,
        later,
        costs.decode_replay if decode else costs.token_replay,
        costs.decode_eager if decode else costs.token_eager,
        Constraints(max_graphs=max(COUNTS), ceiling=256 if decode else 8192),
        memory=costs.decode_graph_bytes if decode else costs.token_graph_bytes,
        capture_s=costs.decode_capture_s if decode else costs.token_capture_s,
        kv=kv,
        alternatives=DEFAULTS[kind],
    )
    best = [next(row for row in reversed(plan.rows) if len(row.buckets) <= count) for count in COUNTS]
    chosen = plan.row.model_copy(update={"name": f"within 1 %: {plan.row.name}"})
    return [*dict.fromkeys(best), chosen, *plan.alternatives]


def heading(name: str, kind: Kind, histogram: Histogram) -> None:
    """The title of a table, with the sizes that occur."""
    bins = histogram.bins(kind)
    spread = ", ".join(f"p{round(share * 100)} {bins.quantile(share)}" for share in (0.5, 0.95, 0.99, 1.0))
    print(f"\n**{name}, {kind}**: {bins.total} steps of {len(bins.low)} sizes ({spread})\n")
    print("| grid | graphs | step ms | held out | coverage | padding | held out | MiB | sequences | Pareto |")
    print("|---|---|---|---|---|---|---|---|---|---|")


def line(row: GridRow) -> str:
    """One row of a table; short grids are spelt out."""
    spelt = f" ({' '.join(map(str, row.buckets))})" if 0 < len(row.buckets) <= 8 else ""
    cells = (
        row.name + spelt,
        str(len(row.buckets)),
        f"{row.step_ms:.3f}",
        f"{row.held_out_step_ms:.3f}",
        f"{row.coverage:.2%}",
        f"{row.padding:.3f}",
        f"{row.held_out_padding:.3f}",
        f"{row.graph_bytes / (1 << 20):.0f}",
        str(row.sequences),
        "yes" if row.pareto else "",
    )
    return f"| {' | '.join(cells)} |"


def tiled(trace: Trace, copies: int) -> Trace:
    """The trace put end to end."""
    period_s = trace.span_s + trace.span_s / len(trace)
    arrivals_s = np.concatenate([trace.arrival_s + copy * period_s for copy in range(copies)])
    columns = (np.tile(trace.prompt_tokens, copies), np.tile(trace.output_tokens, copies))
    return Trace(arrivals_s, *columns, sources=trace.sources)


def best_of(times: int, call: Callable[[], T]) -> tuple[float, T]:
    """The least processor seconds (one thread) of several calls after a first that compiles, and the result."""
    result = call()
    least = float("inf")
    for _ in range(times):
        started = time.process_time()
        result = call()
        least = min(least, time.process_time() - started)
    return least, result


if __name__ == "__main__":
    main()
