"""Kills trtgate at random moments of a runtime's life, and counts what is left: `python benchmarks/runtimes/chaos.py`.

Each round runs a small program that starts a runtime, sends requests and stops it; the round waits for a random stage
of it and ends the program with a signal a random time later. Counted are processes of the run right after the signal,
and processes, files and taken ports after the next start has cleaned up, which must be none. Nothing but 127.0.0.1 is
addressed.
"""

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise, takewhile
from pathlib import Path

ROOT = Path(__file__).parents[2]
STAGES = ("before", "start", "capture", "load", "stop", "after")
AIMS = STAGES[:5]

DRIVER = """
import json, sys, requests
from pathlib import Path
from tests.runtimes.fakes import CONFIG, Fake, START_LOG
from trtgate.runtimes import runtime_for
from trtgate.runtimes.base import Launch
from trtgate.runtimes.process import serve

def say(text):
    print(text, flush=True)

def watch(event):
    if event.kind == "phase":
        say({"process": "start", "capture": "capture"}.get(event.phase.name, ""))

folder, kind = Path(sys.argv[1]), sys.argv[2]
script = {"lines": [{"wait_s": 0.05, "raw": line + "\\n"} for line in START_LOG], "daemon": str(folder / "pid")}
runtime = runtime_for("reference") if kind == "reference" else Fake({**script, "daemon_without_mark": kind == "bare"})
for name, text in runtime.render(CONFIG, "1.2.0").items():
    (folder / name).write_text(text)
launch = Launch("tiny", "127.0.0.1", 0, CONFIG, folder)
limits = {"progress_deadline_s": 60.0, "stop_deadline_s": 5.0}
with serve(runtime, launch, log_path=folder / "server.log", env={}, on_event=watch, **limits) as server:
    say("port " + str(server.port))
    say("load")
    for _ in range(10):
        body = {"model": server.model, "prompt": [1, 2, 3], "max_tokens": 16}
        requests.post(server.url + "/v1/completions", json=body, timeout=10)
    say("stop")
say("after")
"""


def main() -> int:
    """Play all rounds; 1 if anything was left."""
    options = parser().parse_args()
    chance = random.Random(options.seed)
    totals: dict[str, Counter[str]] = {stage: Counter() for stage in STAGES}
    with tempfile.TemporaryDirectory(prefix="trtgate-chaos-") as home:
        os.environ["XDG_RUNTIME_DIR"] = home
        os.environ["PYTHONPATH"] = str(ROOT)
        sys.path.insert(0, str(ROOT))
        lengths = stage_lengths_s(Path(home), options.runtime)
        for number in range(options.rounds):
            aim = chance.choice(AIMS)
            stage, counts = play(Path(home), options, (aim, chance.uniform(0.0, lengths[aim])), number)
            totals[stage].update(counts)
    report(options, totals)
    return 1 if any(counts["left"] for counts in totals.values()) else 0


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(description=__doc__)
    found.add_argument("--rounds", type=int, default=200)
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("--runtime", choices=["reference", "fake", "bare"], default="reference")
    found.add_argument("--signal", choices=["SIGKILL", "SIGTERM", "SIGINT"], default="SIGKILL")
    return found


def launch(folder: Path, kind: str) -> subprocess.Popen[str]:
    """Start the program that lives one life."""
    command = [sys.executable, "-c", DRIVER, str(folder), kind]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT)


def stage_lengths_s(home: Path, kind: str) -> dict[str, float]:
    """How long each stage of a whole life takes here."""
    folder = home / "whole"
    folder.mkdir()
    began = {"before": time.monotonic()}
    with launch(folder, kind) as process:
        for line in lines_of(process):
            if line in STAGES:
                began.setdefault(line, time.monotonic())
    if set(began) != set(STAGES):
        raise SystemExit("a whole life did not come to its end; run the tests first")
    return {stage: began[after] - began[stage] for stage, after in pairwise(STAGES)}


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """What the program says, line by line, until it ends."""
    assert process.stdout is not None
    for line in process.stdout:
        yield line.strip()


def play(
    home: Path, options: argparse.Namespace, aim: tuple[str, float], number: int
) -> tuple[str, dict[str, int]]:
    """One round: the stage in which the signal came, and what was left."""
    from trtgate.runtimes.pidfile import clean_leftovers, folder
    from trtgate.runtimes.tree import everybody, marked

    place = home / f"round-{number}"
    place.mkdir()
    with launch(place, options.runtime) as process:
        output = lines_of(process)
        heard = list(takewhile(lambda line: aim[0] not in {"before", line}, output))
        time.sleep(aim[1])
        process.send_signal(getattr(signal, options.signal))
        output = [*heard, aim[0], *output]
    runs = [path.stem for path in folder().glob("*.json")]
    before = sum(len(marked(run, 0, everybody())) for run in runs) + alive(place)
    port = next((int(line.split()[1]) for line in output if line.startswith("port ")), 0)
    clean_leftovers()
    processes = sum(len(marked(run, 0, everybody())) for run in runs) + alive(place)
    files, ports = len(list(folder().iterdir())), taken(port)
    stage = next((line for line in reversed(output) if line in STAGES), "before")
    left = processes + files + ports
    return stage, {
        "rounds": 1,
        "before": before,
        "processes": processes,
        "files": files,
        "ports": ports,
        "left": left,
    }


def alive(place: Path) -> int:
    """1 if the grandchild that the scripted runtime sends away still lives."""
    from trtgate.runtimes.tree import member

    path = place / "pid"
    return int(path.exists() and member(int(path.read_text())) is not None)


def taken(port: int) -> int:
    """1 if somebody still listens."""
    if not port:
        return 0
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 1
    return 0


def report(options: argparse.Namespace, totals: dict[str, Counter[str]]) -> None:
    """Print the counts by stage, and all of them as JSON."""
    names = ("rounds", "before", "processes", "files", "ports")
    print(f"{options.rounds} x {options.signal}, runtime {options.runtime}")
    print(f"{'stage':8}" + "".join(f"{name:>11}" for name in names))
    for stage, counts in totals.items():
        print(f"{stage:8}" + "".join(f"{counts[name]:11}" for name in names))
    everything = sum(totals.values(), Counter())
    print(json.dumps({name: everything[name] for name in (*names, "left")}))


if __name__ == "__main__":
    sys.exit(main())
