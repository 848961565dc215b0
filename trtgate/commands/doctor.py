"""`trtgate doctor`: what this machine has, what is missing, and what to do about it."""

import os
import shutil
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from trtgate.commands.options import DEFAULT_STORE, JsonOption, QuietOption, StoreOption
from trtgate.console import WIDTH, Console, mebibytes, table

if TYPE_CHECKING:
    from trtgate.evidence.environment import Platform

Row = tuple[str, str, str]  # what, found, what to do
SERVERS = {"trtllm-serve": "tensorrt-llm", "vllm": "vllm"}


def doctor(
    store: StoreOption = DEFAULT_STORE, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """Show the driver, CUDA, GPUs and packages that a release would record, and what is missing."""
    from trtgate.evidence.environment import read_platform

    console = Console(as_json, quiet)
    here = read_platform()
    rows = [*_machine(here), *_devices(here), *_packages(here), *_places(store)]
    todo = {what: hint for what, _found, hint in rows if hint}
    console.record({**here.model_dump(mode="json"), "todo": todo})
    console.show(table(("what", "found"), [(what, found) for what, found, _hint in rows], left=2))
    if todo:
        lines = [fill(f"{what}: {hint}", WIDTH, subsequent_indent="  ") for what, hint in todo.items()]
        console.show("\n" + "\n".join(lines))


def _machine(here: "Platform") -> list[Row]:
    return [
        ("trtgate", here.trtgate, ""),
        ("python", here.python, ""),
        ("kernel", f"{here.kernel} {here.machine}", ""),
        ("container", here.container or "none seen", ""),
        ("cpu", f"{here.cpu}, {here.cpu_count} cores", ""),
        ("memory", mebibytes(here.memory_bytes), ""),
    ]


def _devices(here: "Platform") -> list[Row]:
    missing = (
        "" if here.driver else "install the NVIDIA driver, or use the reference runtime, which needs none"
    )
    rows: list[Row] = [
        ("driver", here.driver or here.gpu_note, missing),
        ("CUDA driver", here.cuda_driver or "-", ""),
    ]
    for index, gpu in enumerate(here.gpus):
        state = f"{gpu.name}, {mebibytes(gpu.memory_bytes)}, compute {gpu.compute_capability}"
        clocks = f", {gpu.sm_clock_mhz} of {gpu.max_sm_clock_mhz} MHz" if gpu.sm_clock_mhz else ""
        held = (
            ""
            if not gpu.throttle_reasons or gpu.throttle_reasons == 1
            else "it is throttled: look at power and heat"
        )
        rows.append((f"gpu {index}", state + clocks, held))
    return rows


def _packages(here: "Platform") -> list[Row]:
    from trtgate.evidence.environment import PACKAGES

    rows = [(name, here.packages.get(name, "not installed"), "") for name in PACKAGES]
    for program, package in SERVERS.items():
        path = shutil.which(program)
        wanted = package in here.packages and path is None
        rows.append(
            (
                program,
                path or "not on PATH",
                f"`{package}` is installed: add its `bin` to PATH" if wanted else "",
            )
        )
    if "torch" not in here.packages:
        rows.append(("reference", "cannot run", "install it with `pip install 'trtgate[reference]'`"))
    return rows


def _places(store: Path) -> list[Row]:
    place = store if store.exists() else store.resolve().parent
    writable = place.is_dir() and os.access(place, os.W_OK)
    hint = "" if writable else "give another folder with `--store` or TRTGATE_STORE"
    return [("store", f"{store}, {'can be written' if writable else 'cannot be written'}", hint)]
