"""Interrupts the main job at random moments and looks for what is left: processes, ports, half-written files.

    python benchmarks/demo/interrupt.py --rounds 20 --signal INT    # or TERM, KILL

Each round runs `trtgate gate` of the demo's profile in a folder of its own, sends the signal after a random time,
waits, and counts what remains. After KILL, the next start must clean up; so a `warmup` follows before the count.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
PROFILE = ROOT / "profiles" / "reference-tiny.yaml"
LONGEST_S = 60.0


def main() -> None:
    """Run the rounds and print one line each and a sum."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--signal", choices=("INT", "TERM", "KILL"), default="INT")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job would hand down "ignored"
    moments = random.Random(options.seed)
    left = 0
    for number in range(1, options.rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            after_s = moments.uniform(0.1, LONGEST_S)
            code, found = one_round(Path(folder), signal.Signals[f"SIG{options.signal}"], after_s)
        print(
            f"{number}: {options.signal} after {after_s:.1f} s, exit {code}, left: {found or 'nothing'}",
            flush=True,
        )
        left += len(found)
    print(f"{options.rounds} rounds, {left} leftovers")
    sys.exit(1 if left else 0)


def one_round(folder: Path, number: signal.Signals, after_s: float) -> tuple[int, list[str]]:
    """One gate, interrupted; returns its exit code and what it left."""
    command = [sys.executable, "-m", "trtgate", "gate", str(PROFILE), "--out", "c", "--store", "r", "--quiet"]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
    code = process.wait(60)
    if number == signal.SIGKILL and (folder / "c" / "plan.json").is_file():
        subprocess.run(
            [sys.executable, "-m", "trtgate", "warmup", "c", "--quiet"],
            cwd=folder,
            capture_output=True,
            check=False,
        )
    return code, leftovers(folder)


def leftovers(folder: Path) -> list[str]:
    """Processes that were started in the folder (their ports with them), and temporary files in it."""
    time.sleep(0.5)
    processes = [
        f"process {process.pid}"
        for process in psutil.process_iter(["pid", "cwd", "status"])
        if process.info["cwd"] == str(folder) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
    files = [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.name.endswith(".tmp") or path.name.startswith((".staging-", ".current.new", ".lock-holder"))
    ]
    return processes + files


if __name__ == "__main__":
    main()
