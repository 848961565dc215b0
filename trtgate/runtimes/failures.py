"""Names a failure from the log: the line that caused it, not the noise that follows."""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from trtgate.runtimes.base import Failure, Phase

_EXCEPTION = re.compile(r"(?:^|[\s\]])((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)\b:?.*)$")
_LEVEL = re.compile(r"\[(?:TRT-LLM|TensorRT-LLM)\].*?\[(?:E|ERROR|F|FATAL)\]|\bERROR\b|\bCRITICAL\b")
_WARNING = re.compile(r"\[(?:TRT-LLM|TensorRT-LLM)\].*?\[(?:W|WARNING)\]|\bWARNING \d\d-\d\d ")
_FREE = re.compile(
    r"(?:Free GPU memory before component creation attempt \(GiB\):|Available KV cache memory:)\s*([\d.]+)"
)
_RANK = re.compile(r"\[RANK (\d+)\]")
_PREFIX = re.compile(r"^(?:\([\w ]+ pid=\d+\)\s*)?(?:\[[^\]]*\]\s*)+")


@dataclass(frozen=True, slots=True)
class Signature:
    """A fragment of a log line and what it means; `{phase}` in the message is filled in."""

    code: str
    pattern: re.Pattern[str]
    message: str
    hint: str


def signature(code: str, pattern: str, message: str, hint: str) -> Signature:
    """A signature from the text of its pattern, matched anywhere in a line."""
    return Signature(code, re.compile(pattern), message, hint)


FEWER = "capture fewer or smaller buckets, or lower the memory fraction by 0.02 to 0.05"

COMMON = (
    signature(
        "driver-mismatch",
        r"(?i)(CUDA driver version is insufficient|forward compatibility was attempted|"
        r"cudaErrorInsufficientDriver|unsupported display driver|error (?:code )?80[34]\b|"
        r"driver on your system is too old)",
        "the driver does not fit the CUDA version of the runtime",
        "compare `trtgate doctor` with the version that the runtime's image asks for",
    ),
    signature(
        "port-taken",
        r"(?i)(failed to bind socket to|address already in use|errno 98)",
        "the port was taken between the check and the start",
        "start again with port 0; if an MPI launcher starts the runtime, leave its ranks to the runtime instead",
    ),
    signature(
        "no-model",
        r"(?i)(no config\.json|does not appear to have a file named config\.json|"
        r"not a valid model identifier|unrecognized model|repository not found)",
        "the runtime found no such model",
        "check the path or name and, for a private hub, the token",
    ),
    signature(
        "out-of-memory",
        r"(?i)(CUDA out of memory|CUDA error: out of memory|outofmemoryerror|insufficient GPU memory)",
        "the device ran out of memory while {phase}",
        FEWER,
    ),
    signature(
        "capture-failed",
        r"(operation not permitted when stream is capturing|cudaErrorStreamCapture\w+|"
        r"CUDA graph capturing detected at an inappropriate time)",
        "the capture of a graph failed while {phase}",
        "an operation synchronises inside the capture; start with `build --target eager` to confirm",
    ),
)


def name_failure(
    lines: Sequence[str],
    exit_code: int | None,
    phase: Phase | None,
    signatures: Sequence[Signature],
    noise: re.Pattern[str] | None = None,
) -> Failure:
    """The first signature, in their order, that any line bears; else the first exception in the log."""
    doing = str(phase or Phase("process"))
    useful = [line for line in lines if not _WARNING.search(line) and not (noise and noise.search(line))]
    for entry in signatures:
        for line in useful:
            if entry.pattern.search(line):
                in_capture = entry.code == "out-of-memory" and phase is not None and phase.name == "capture"
                code = "capture-oom" if in_capture else entry.code
                hint = entry.hint + (_free_before(useful) if "memory" in entry.message else "")
                return Failure(code, entry.message.format(phase=doing), hint, bare(line))
    root = root_line(useful)
    if exit_code is None:
        message = f"the runtime stopped making progress while {doing}"
        return Failure(
            "hung", message, "see the log; try `build --target eager`", _last_of_ranks(lines) or root
        )
    if exit_code in {-signal.SIGKILL, 128 + signal.SIGKILL} and not _told(useful):
        hint = "the kernel may have ended it for memory; look at `dmesg` and at the limits of the container"
        return Failure("killed", f"the runtime was killed while {doing}", hint)
    if exit_code == 2:  # what command lines end with that were given a wrong option
        hint = "look at `runtime.args`, and at the version in the profile"
        return Failure("bad-configuration", "the runtime refused its command line", hint, root)
    return Failure("died", f"the runtime {_ending(exit_code)} while {doing}", "see the log", root)


def _free_before(lines: Sequence[str]) -> str:
    """How much was free before, where the log has it."""
    found = [match.group(1) for line in lines if (match := _FREE.search(line))]
    return f"; {found[-1]} GiB were free before" if found else ""


def _last_of_ranks(lines: Sequence[str]) -> str:
    """The last line of every rank, where there are several."""
    last = {int(match.group(1)): line for line in lines if (match := _RANK.search(line))}
    return (
        "; ".join(f"rank {rank}: {bare(last[rank])[:120]}" for rank in sorted(last)) if len(last) > 1 else ""
    )


def _ending(exit_code: int) -> str:
    if exit_code < 0 and -exit_code in signal.valid_signals():
        return f"died of {signal.Signals(-exit_code).name}"
    return f"ended with {exit_code}"


def root_line(lines: Sequence[str]) -> str:
    """The line that names the cause: the first exception, else the first error line, else the last line."""
    last = [line for line in lines[-5:] if line.strip()]
    return _told(lines) or bare((last[-1:] or [""])[0])


def _told(lines: Sequence[str]) -> str:
    """The first exception, in a traceback if there is one, else the first line of level error; else nothing."""
    starts = [at for at, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    for line in lines[starts[0] if starts else 0 :]:
        match = _EXCEPTION.search(line)
        if match:
            return bare(match.group(1))
    return bare(next((line for line in lines if _LEVEL.search(line)), ""))


def bare(line: str) -> str:
    """A line without its prefixes, at most 300 characters."""
    text = _PREFIX.sub("", line).strip() or line.strip()
    return text if len(text) <= 300 else text[:297] + "..."
