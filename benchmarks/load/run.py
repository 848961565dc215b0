"""The load client against a server whose answers are known: errors, processor time and memory over a grid.

`python benchmarks/load/run.py` prints a table; `README.md` beside it says how the numbers there were made.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trtgate.loads.metrics import quantile
from trtgate.loads.oracle import Script
from trtgate.loads.selfcheck import known_server

TOKENS = 200
SCENARIOS = {
    "steady": Script(),
    "stalls": Script(stall_every=50),
    "role": Script(role=True),
    "bundles": Script(bundle=4),
    "steps": Script(step_s=0.02),
}
CLIENT = Path(__file__).with_name("client.py")


@dataclass(frozen=True)
class Cell:
    """One run: which client, how many streams, which kind of stream."""

    client: str
    streams: int
    scenario: str


def measure(cell: Cell, rounds: int, *, pin: bool) -> dict[str, float]:
    """Run one cell in fresh processes; quantiles as sent and as got, in ms, and what they cost."""
    path = "/v1/chat/completions" if cell.scenario == "role" else "/v1/completions"
    with known_server(SCENARIOS[cell.scenario], *core(0, pin=pin)) as known:
        # aiperf's processes share the core, and one of them never sleeps: equal turns would starve its worker.
        command = [
            *core(1, pin=pin, turns=not cell.client.startswith("aiperf")),
            sys.executable,
            str(CLIENT),
            cell.client,
            known.target.url,
            path,
        ]
        command += [str(cell.streams), str(rounds), str(TOKENS), str(time.monotonic_ns())]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300)
    got = json.loads(done.stdout.splitlines()[-1])
    ttft = np.array([one[1] - one[0] for one in known.log]) * 1e3
    gaps = np.concatenate([np.diff(one[1:]) for one in known.log]) * 1e3
    for name, sent in (("ttft", ttft), ("itl", gaps)):
        for place in (50, 99):
            got[f"{name}_p{place}_sent"] = quantile(sent, place / 100)
    return got


def core(number: int, *, pin: bool, turns: bool = True) -> list[str]:
    """The words before a command that give it a core, and precedence on it where this user may."""
    if not pin:
        return []
    first = ["chrt", "--rr", "10"] if turns else ["nice", "-n", "-15"]
    may = os.geteuid() == 0 and shutil.which(first[0])
    return [*(first if may else []), "taskset", "--cpu-list", str(number)]


def row(cell: Cell, got: dict[str, float]) -> str:
    """One line of the table: errors relative for ITL, in ms for TTFT."""
    itl = [got[f"itl_p{p}"] / got[f"itl_p{p}_sent"] - 1 for p in (50, 99)]
    ttft = [got[f"ttft_p{p}"] - got[f"ttft_p{p}_sent"] for p in (50, 99)]
    return (
        f"| {cell.client.partition('=')[0]} | {cell.scenario} | {cell.streams} | {got['tokens_per_s']:,.0f} "
        f"| {got['itl_p99_sent']:.1f} | {itl[0]:+.1%} | {itl[1]:+.1%} | {ttft[0]:+.2f} | {ttft[1]:+.2f} "
        f"| {got['cpu_us_token']:.1f} | {got['pss_mb']:.0f} | {got['peak_mb']:.0f} | {got['first_s']:.2f} |"
    )


def main() -> None:
    """Run the grid, print the table, keep the figures as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[16, 64, 128, 256, 512, 1024, 1536, 2048])
    parser.add_argument("--others-at", type=int, default=256, help="streams for all but the steady scenario")
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument(
        "--clients", nargs="+", default=["trtgate"], help="trtgate, vllm-bench=FILE, aiperf=COMMAND,TOKENIZER"
    )
    parser.add_argument("--rounds", type=int, default=2, help="requests a stream")
    parser.add_argument("--no-pin", action="store_true", help="let the system place both processes")
    parser.add_argument("--out", type=Path, help="append the figures to this file")
    options = parser.parse_args()
    print(
        "| client | streams are | n | tok/s | ITL p99 sent | ITL p50 | ITL p99 | TTFT p50 ms | TTFT p99 ms",
        end=" ",
    )
    print("| us/token | PSS MB | peak MB | first s |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for scenario in options.scenarios:
        for streams in options.streams if scenario == "steady" else [options.others_at]:
            for client in options.clients:
                cell = Cell(client, streams, scenario)
                got = measure(cell, options.rounds, pin=not options.no_pin)
                print(row(cell, got), flush=True)
                if options.out:
                    with options.out.open("a") as file:
                        file.write(json.dumps({**vars(cell), **got}) + "\n")


if __name__ == "__main__":
    main()
