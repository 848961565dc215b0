"""Reads TensorRT-LLM's log: stages of the start, captured sizes, iteration lines, and why it failed."""

import re
from collections.abc import Iterable, Sequence

from trtgate.runtimes.base import Failure, Grids, Kind, Phase, Row
from trtgate.runtimes.failures import COMMON, FEWER, name_failure, signature

_DECODE = re.compile(r"Run generation[- ]only CUDA graph warmup(?: \([\w ]+\))? for batch size=(\d+)")
_TOKENS = re.compile(r"Run piecewise CUDA graph warmup for num tokens=(\d+)(?P<again> with most requests)?")
_SKIPPED = re.compile(r"Skipping CUDA graph warmup(?: \([^)]*\))? for batch size=(\d+)")
_KV = re.compile(r"max tokens in paged KV cache \((\d+)\)")
_ITERATION = re.compile(r"\biter = (\d+), global_rank")
_STATE = re.compile(r"'(\w+)': (\d+)")
_FIELD = re.compile(r"(\w+)\s*[=:]\s*(\{[^}]*\}|[^,]+)")

_PHASES: tuple[tuple[str, Phase], ...] = (
    ("Application startup complete", Phase("ready")),
    ("Uvicorn running on", Phase("ready")),
    ("Running torch.compile warmup", Phase("compile")),
    ("Running autotuner warmup", Phase("warm-up")),
    ("Run warmup with", Phase("warm-up")),
    ("Creating CUDA graph instances", Phase("capture")),
    ("Running piecewise CUDA graph warmup", Phase("capture")),
    ("Loading weights", Phase("load")),
    ("Prefetching", Phase("load")),
    ("Loading checkpoint shards", Phase("load")),
)

NOISE = re.compile(r"object has no attribute 'cuda_graph_runner'|Exception ignored in")

SIGNATURES = (
    *COMMON[:3],
    signature(
        "out-of-memory",
        r"The following component could not be created: ",
        "the device ran out of memory while {phase}",
        FEWER
        + "; lower `kv_cache_config.free_gpu_memory_fraction` first where the component is the KV cache",
    ),
    *COMMON[3:],
    signature(
        "bad-configuration",
        r"(Extra inputs are not permitted|Please don't set both|is incompatible with|root must be a mapping|"
        r"conflicts with prefill_|validation errors? for)",
        "the runtime refused its configuration",
        "run `trtgate check` on the file with this version",
    ),
    signature(
        "communication",
        r"Executor creation failed with NCCL error",
        "the ranks could not reach each other",
        "this error can hide a lack of memory; look above it in the log",
    ),
    signature("hang", r"Hang detected on rank \d+", "a rank of the runtime hung", "start again with eager"),
    signature(
        "worker-died",
        r"Executor worker died during initialization",
        "a worker process vanished while {phase}",
        "the kernel may have ended it for memory; look at `dmesg`",
    ),
)


def captured(lines: Iterable[str]) -> Grids:
    """The sizes of the last block of capture lines; the estimation of the KV size makes an earlier one."""
    found: dict[Kind, set[int]] = {"decode": set(), "tokens": set()}
    for line in lines:
        if "Creating CUDA graph instances for" in line:
            found = {"decode": set(), "tokens": set()}
        elif "Running piecewise CUDA graph warmup" in line:
            found["tokens"] = set()
        elif match := _SKIPPED.search(line):
            found["decode"].discard(int(match.group(1)))
        elif mark := capture_mark(line):
            kind, size = mark
            found[kind].add(size)
    return Grids(tuple(sorted(found["decode"])), tuple(sorted(found["tokens"])))


def kv_tokens(lines: Iterable[str]) -> int | None:
    """The capacity of the KV cache; the last line counts, since the first is an estimate."""
    found = [int(match.group(1)) for line in lines if (match := _KV.search(line))]
    return found[-1] if found else None


def capture_mark(line: str) -> tuple[Kind, int] | None:
    """The kind and size whose capture a line announces."""
    if "CUDA graph warmup for" not in line and "CUDA graph warmup (" not in line:
        return None  # most lines, at little cost
    if match := _DECODE.search(line):
        return "decode", int(match.group(1))
    match = _TOKENS.search(line)
    return ("tokens", int(match.group(1))) if match and not match.group("again") else None


def phase(line: str) -> Phase | None:
    """The stage that a line announces."""
    if mark := capture_mark(line):
        return Phase("capture", *mark)
    return next((found for text, found in _PHASES if text in line), None)


def failure(lines: Sequence[str], exit_code: int | None, now: Phase | None) -> Failure:
    """Name the failure of a start or of a running server."""
    return name_failure(lines, exit_code, now, SIGNATURES, NOISE)


def rows(lines: Iterable[str]) -> list[Row]:
    """Iteration lines of any era as rows with the fields under `log`; other ranks are left out."""
    return [row for line in lines if (row := _row(line)) is not None]


def _row(line: str) -> Row | None:
    start = _ITERATION.search(line)
    if start is None:
        return None
    fields = dict(_FIELD.findall(line[start.start() :]))
    states = _states(fields.get("states", ""))
    if states is None or fields.get("rank", "0").strip() != "0":
        return None
    scheduled = _number(fields.get("num_scheduled_requests", ""))
    return {
        "iter": int(start.group(1)),
        "log": {
            "scheduled": None if scheduled is None else int(scheduled),
            "context_requests": states.get("num_ctx_requests", 0),
            "context_tokens": states.get("num_ctx_tokens", 0),
            "generation_tokens": states.get("num_generation_tokens", 0),
            "host_ms": _time_ms(fields),
            "device_ms": _number(fields.get("prev_device_step_time", "")),
        },
    }


def _states(text: str) -> dict[str, int] | None:
    found = {name: int(value) for name, value in _STATE.findall(text)}
    return found or None


def _time_ms(fields: dict[str, str]) -> float | None:
    seconds = _number(fields.get("elapsed_time", ""))
    return seconds * 1000 if seconds is not None else _number(fields.get("host_step_time", ""))


def _number(text: str) -> float | None:
    match = re.match(r"\s*(-?\d+(?:\.\d+)?)", text)
    return float(match.group(1)) if match else None
