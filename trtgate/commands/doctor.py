"""`trtgate doctor`: what this machine has, and what is missing."""

from trtgate.commands.options import JsonOption, QuietOption
from trtgate.console import Console, mebibytes, table


def doctor(as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Show the driver, CUDA, GPUs and packages that a release would record."""
    from trtgate.evidence.environment import PACKAGES, read_platform

    console = Console(as_json, quiet)
    here = read_platform()
    console.record(here.model_dump(mode="json"))
    rows: list[tuple[str, object]] = [
        ("trtgate", here.trtgate),
        ("python", here.python),
        ("kernel", f"{here.kernel} {here.machine}"),
        ("container", here.container or "none seen"),
        ("cpu", f"{here.cpu}, {here.cpu_count} cores"),
        ("memory", mebibytes(here.memory_bytes)),
        ("driver", here.driver or here.gpu_note),
        ("CUDA driver", here.cuda_driver),
        *(
            (f"gpu {index}", f"{gpu.name}, {mebibytes(gpu.memory_bytes)}, compute {gpu.compute_capability}")
            for index, gpu in enumerate(here.gpus)
        ),
        *((name, here.packages.get(name, "not installed")) for name in PACKAGES),
    ]
    console.show(table(("what", "found"), rows, left=2))
