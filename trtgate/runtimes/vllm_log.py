"""Reads vLLM's log: stages of the start, the resolved sizes, iteration lines, the graph table, and failures."""

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from trtgate.runtimes.base import Failure, Grids, Phase, PhaseName, Row, Step
from trtgate.runtimes.failures import COMMON, name_failure, signature
from trtgate.runtimes.vllm_grids import MODES, Limits, Mode, grids_of

_SIZES = re.compile(r"'?cudagraph_capture_sizes'?: (\[[\d, ]*\])")
_MODE = re.compile(r"'?cudagraph_mode'?: <CUDAGraphMode\.(\w+)")
_SEQS = re.compile(r"'max_num_seqs': (\d+)")
_TOKENS = re.compile(r"'max_num_batched_tokens': (\d+)")
_KV = re.compile(r"KV cache size: ([\d,]+) tokens")
_SEQ_LEN = re.compile(r"max_seq_len=(\d+)")
_FINISHED = re.compile(r"(?i)graph capturing finished in [\d.]+ secs?, took (-?[\d.]+) GiB")
_ITERATION = re.compile(
    r"Iteration\((?P<iteration>\d+)\): (?P<context_requests>\d+) context requests, "
    r"(?P<context_tokens>\d+) context tokens, (?P<generation_requests>\d+) generation requests, "
    r"(?P<generation_tokens>\d+) generation tokens(?:, iteration elapsed time: (?P<ms>[\d.]+) ms)?"
    r"(?:.*?KV cache usage: (?P<kv>[\d.]+)%)?"
)
_ENGINE = re.compile(r"Engine 0*(\d+): |EngineCore_DP(\d+)")
_TABLE_ROW = re.compile(r"\|\s*(\d+)\s*\|\s*(\d+)\s*\|\s*(\d+)\s*\|\s*(\w+)\s*\|\s*(\d+)\s*\|")
_UNKNOWN_GRAPH = 1 << 30  # a batch limit that the log does not name

_PHASES: tuple[tuple[str, PhaseName], ...] = (
    ("Capturing CUDA graphs", "capture"),
    ("Profiling CUDA graph memory", "capture"),
    ("Loading weights took", "load"),
    ("Loading safetensors checkpoint shards", "load"),
    ("Starting to load model", "load"),
    ("Model loading took", "load"),
    ("Dynamo bytecode transform time", "compile"),
    ("Compiling a graph for", "compile"),
    ("torch.compile took", "compile"),
    ("Initial profiling/warmup run took", "warm-up"),
    ("init engine (profile", "warm-up"),
    ("Application startup complete", "ready"),
)

NOISE = re.compile(
    r"nanobind: leaked|resource_tracker: There appear to be|EngineCore encountered an issue|"
    r"Engine core initialization failed|EngineCore failed to start|destroy_process_group|RuntimeError: Engine"
)

SIGNATURES = (
    *COMMON[:3],
    signature(
        "kv-memory",
        r"No available memory for the cache blocks|KV cache is needed",
        "no memory is left for the KV cache while {phase}",
        "raise the memory fraction, or lower `max_seq_len` or the number of graphs",
    ),
    signature(
        "memory-held",
        r"Free memory on device .* is less than desired GPU memory utilization",
        "the device has less free memory than the fraction asks for",
        "another process holds it (`nvidia-smi`), or lower the memory fraction",
    ),
    signature(
        "sampler-oom",
        r"CUDA out of memory occurred when warming up sampler",
        "the device ran out of memory while warming up the sampler",
        "lower `max_batch_size` or the memory fraction",
    ),
    *COMMON[3:],
    signature(
        "bad-configuration",
        r"(mutually exclusive|validation errors? for|unrecognized arguments|KeyError: '[A-Z_]+'|"
        r"invalid loads value|error: argument)",
        "the runtime refused its configuration",
        "run `trtgate check` on the file with this version",
    ),
)


def captured(lines: Iterable[str]) -> Grids:
    """The grids of the resolved sizes, if the log says that capture has finished; else none."""
    sizes: tuple[int, ...] = ()
    mode: Mode = "NONE"
    seqs, tokens, finished = _UNKNOWN_GRAPH, _UNKNOWN_GRAPH, False
    for line in lines:
        if match := _SIZES.search(line):
            sizes = tuple(sorted(set(ast.literal_eval(match.group(1)))))
        if match := _MODE.search(line):
            mode = next((known for known in MODES if known == match.group(1)), "NONE")
        seqs = int(match.group(1)) if (match := _SEQS.search(line)) else seqs
        tokens = int(match.group(1)) if (match := _TOKENS.search(line)) else tokens
        finished = finished or _FINISHED.search(line) is not None
    return grids_of(sizes, mode, Limits(seqs, tokens)) if finished else Grids()


def kv_tokens(lines: Iterable[str]) -> int | None:
    """The capacity of the KV cache; the last line counts."""
    found = [match.group(1) for line in lines if (match := _KV.search(line))]
    return int(found[-1].replace(",", "")) if found else None


def reported(lines: Iterable[str]) -> dict[str, int]:
    """Limits from the line of the arguments in effect and from that of the resolved configuration."""
    found: dict[str, int] = {}
    for line in lines:
        if "non-default args:" in line:
            places = {"max_batch_size": _SEQS, "max_num_tokens": _TOKENS}
            found |= {name: int(match.group(1)) for name, at in places.items() if (match := at.search(line))}
        elif "Initializing a V1 LLM engine" in line and (match := _SEQ_LEN.search(line)):
            found["max_seq_len"] = int(match.group(1))
    return found


def phase(line: str) -> Phase | None:
    """The stage that a line announces; progress bars name no size."""
    for text, name in _PHASES:
        if text in line:
            return Phase(name)
    return None


def failure(lines: Sequence[str], exit_code: int | None, now: Phase | None) -> Failure:
    """Name the failure of a start or of a running server."""
    return name_failure(lines, exit_code, now, SIGNATURES, NOISE)


def rows(lines: Iterable[str]) -> list[Row]:
    """Iteration lines of the first engine, and each printed graph table as one row under `graph_table`."""
    found: list[Row] = []
    for line in lines:
        if match := _ITERATION.search(line):
            engine = _ENGINE.search(line)
            if engine is None or "0" in engine.groups():
                fields: dict[str, str | None] = match.groupdict()
                found.append({name: _number(text) for name, text in fields.items()})
        elif match := _TABLE_ROW.search(line):
            real, padded, _, graph, count = match.groups()
            if not found or "graph_table" not in found[-1]:
                found.append({"graph_table": []})
            entry = {"size": int(real), "bucket": int(padded), "mode": graph, "count": int(count)}
            found[-1]["graph_table"].append(entry)
    return found


def refined(step: Step, table: Sequence[Row]) -> Step | None:
    """A step with what the graph table says about its size; `None` where the table leaves it open.

    The table counts by tokens and does not tell decode from mixed steps: FULL means decode wherever another mode
    stands beside it.
    """
    entries = [entry for entry in table if entry["size"] == step.size]
    full = [entry for entry in entries if entry["mode"] == "FULL"]
    others = [entry for entry in entries if entry["mode"] != "FULL"]
    fitting = (full or others) if step.kind == "decode" else (others or full)
    if len(fitting) != 1:
        return None
    (entry,) = fitting
    if entry["mode"] == "NONE":
        why = step.reason or "not captured"
        return replace(step, bucket=None, replayed=False, reason=why, predicted=False)
    reason = "piecewise graph" if step.kind == "decode" and entry["mode"] == "PIECEWISE" else None
    return replace(step, bucket=entry["bucket"], replayed=True, reason=reason, predicted=False)


def _number(text: str | None) -> float | int | None:
    if text is None:
        return None
    return float(text) if "." in text else int(text)
