"""The main job on the embedded runtime: three candidates, one of them faulty, and the way back; then the story."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROFILE = ROOT / "profiles" / "reference-tiny.yaml"
OUT = Path("build") / "demo"
NAME = "reference-tiny"


@dataclass
class Demo:
    """Runs one command after the other and remembers what came of it."""

    store: Path
    story: list[str]

    def run(self, *arguments: str, expect: int = 0) -> str:
        """Run `trtgate`; ends the demo where the exit code is another than expected."""
        command = [sys.executable, "-m", "trtgate", *arguments]
        print(
            f"\n\033[1m$ trtgate {' '.join(arguments)}\033[0m"
            if sys.stdout.isatty()
            else f"\n$ trtgate {' '.join(arguments)}"
        )
        sys.stdout.flush()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        forward(process)
        output = ""
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            output += line
        code = process.wait()
        if code != expect:
            print(f"demo: `trtgate {arguments[0]}` ended with {code}, expected {expect}", file=sys.stderr)
            sys.exit(code or 1)
        return output

    def tell(self, text: str) -> None:
        """Keep a paragraph for the end."""
        self.story.append(text)


def forward(process: "subprocess.Popen[str]") -> None:
    """Hand a polite end on to the command, which cleans up after itself."""

    def stop(number: int, _frame: object) -> None:
        process.send_signal(number)
        process.wait()
        sys.exit(130)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def read(path: Path) -> dict[str, Any]:
    """A record that a command wrote."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def first_candidate(demo: Demo, folder: Path) -> None:
    """Step by step, as a person would."""
    demo.run("build", str(PROFILE), "--out", str(folder))
    demo.run("warmup", str(folder))
    demo.run("canary", str(folder), "--store", str(demo.store))
    demo.run("release", str(folder), "--store", str(demo.store))
    plan, proof, verdict = (read(folder / name) for name in ("plan.json", "warmup.json", "verdict.json"))
    source = plan["trace"][0]
    default = next(row for row in plan["decode"]["alternatives"] if row["name"] == "runtime default")
    chosen = plan["decode"]["rows"][plan["decode"]["chosen"]]
    demo.tell(
        f"Chosen: from {source['kept']} requests of `{source['name']}` (lengths divided by 8), decode sizes "
        f"{plan['effective_decode']} and token sizes {plan['effective_tokens']}. "
        f"{len(plan['effective_decode'])} decode graphs cost {chosen['step_ms']:.3f} ms a step, against "
        f"{default['step_ms']:.3f} ms with the {len(default['buckets'])} of the runtime's default: half the graphs, "
        f"hardly more padding ({chosen['padding']:.3f}). These costs are a {plan['cost_basis']}."
    )
    checked = sum(bucket["answers_checked"] for bucket in proof["buckets"])
    demo.tell(
        f"Proven: {proof['reason']}; {checked} answers equal those of an eager start, token for token. "
        f"The runtime was ready {proof['phases_ms']['ready']:.0f} ms after its start."
    )
    demo.tell("First candidate against the runtime's default: " + describe(verdict))


def describe(verdict: dict[str, Any]) -> str:
    """A verdict in one sentence."""
    numbers = "; ".join(
        f"{metric['name']} {metric['ratio']:.2f}x, bound {metric['upper_ratio']:.2f}, limit {metric['limit_ratio']:.2f}"
        for metric in verdict["metrics"]
        if metric["state"] == "passed"
    )
    return f"{verdict['result'].upper()} after {verdict['pairs_valid']} pairs of fresh starts ({numbers})."


def second_candidate(demo: Demo, folder: Path) -> None:
    """In one go, against the release in service."""
    demo.run(
        "gate",
        str(PROFILE),
        "--out",
        str(folder),
        "--store",
        str(demo.store),
        "--set",
        "grid.max_decode_graphs=6",
    )
    demo.tell(
        "Second candidate (6 decode graphs) against the first release: "
        + describe(read(folder / "verdict.json"))
    )
    cannot = read(folder / "verdict.json")["cannot_prove"]
    demo.tell(
        "What so short a run cannot prove: "
        + " ".join(f"({index}) {text}." for index, text in enumerate(cannot, 1))
    )


def third_candidate(demo: Demo, folder: Path, bucket: int) -> None:
    """A faulty one: one bucket answers wrongly when a batch is padded into it."""
    demo.run(
        "gate", str(PROFILE), "--out", str(folder), "--store", str(demo.store),
        "--set", f"runtime.args=[--fault, 'wrong-output:{bucket}']",
        expect=10,
    )  # fmt: skip
    reason = read(folder / "warmup.json")["reason"]
    demo.tell(f"Third candidate (wrong answers in bucket {bucket}): refused with exit code 10. {reason}.")


def main() -> None:
    """Run the demo; about four minutes on two cores."""
    started = time.monotonic()
    demo = Demo(store=OUT / "releases", story=[])
    if demo.store.exists():
        print(f"demo: `{OUT}` is left from an earlier demo; `rm -r {OUT}` first", file=sys.stderr)
        sys.exit(2)
    first_candidate(demo, OUT / "first")
    second_candidate(demo, OUT / "second")
    sizes = read(OUT / "first" / "plan.json")["effective_decode"]
    third_candidate(demo, OUT / "third", sizes[-1])
    demo.run("rollback", NAME, "--store", str(demo.store), "--reason", "demo")
    demo.run("release", "list", NAME, "--store", str(demo.store))
    live = (demo.store / NAME / "current").resolve()
    demo.tell(
        f"Rolled back: from the second release to the first, after every digest was checked and a trial start "
        f"answered. In service: release {live.name}; the artifact is the folder {demo.store / NAME / live.name}."
    )
    print(f"\n{'=' * 80}\nThe story, {time.monotonic() - started:.0f} s\n")
    for text in demo.story:
        print(fill(text, 80) + "\n")


if __name__ == "__main__":
    main()
