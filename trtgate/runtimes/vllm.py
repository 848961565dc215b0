"""The adapter for `vllm serve`, 0.10 to 0.33."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import yaml

from trtgate.plans.config import RuntimeConfig
from trtgate.runtimes import vllm_log
from trtgate.runtimes.base import (
    Failure,
    Finding,
    Grids,
    Inspection,
    Launch,
    Phase,
    Row,
    Step,
    option,
    untested,
)
from trtgate.runtimes.rows import predict
from trtgate.runtimes.versions import Version, parse_version
from trtgate.runtimes.vllm_check import inspect_text
from trtgate.runtimes.vllm_grids import OWN_MODE, config_grids, wanted_mode, wanted_sizes

FILE = "vllm.yaml"
ITERATIONS = Version(0, 18)  # the oldest that was read; older ones may lack the flags
TABLE_ON_V2 = Version(0, 32)


class Vllm:
    """`vllm serve`; all settings are in one file of options, `--compilation-config` as JSON within."""

    kind = "vllm"
    versions = (Version(0, 10), Version(0, 33))
    statistics: Literal["endpoint", "log"] = "log"
    statistics_hint = "its log must hold iteration lines; versions before 0.18 may print none"
    settle_s: float = 2.5

    def render(self, config: RuntimeConfig, version: str) -> dict[str, str]:
        """The file for `vllm serve --config`: long option names without their hyphens in front."""
        number = parse_version(version)
        data: dict[str, Any] = {
            "max-num-seqs": config.max_batch_size,
            "max-num-batched-tokens": config.max_num_tokens,
            "max-model-len": config.max_seq_len,
            "gpu-memory-utilization": config.kv_memory_fraction,
            _switch("enable-chunked-prefill", on=config.chunked_prefill): True,
            _switch("enable-prefix-caching", on=config.block_reuse): True,
        }
        if config.tensor_parallel > 1:
            data["tensor-parallel-size"] = config.tensor_parallel
        if number >= ITERATIONS:
            data |= {"enable-logging-iteration-details": True, "cudagraph-metrics": True}
        if wanted_mode(config) == "NONE":
            data["enforce-eager"] = True
        elif config.decode_buckets is not None and config.token_buckets is not None:
            compilation: dict[str, Any] = {"cudagraph_capture_sizes": list(wanted_sizes(config))}
            if number >= OWN_MODE:
                compilation["cudagraph_mode"] = wanted_mode(config)
            data["compilation-config"] = json.dumps(compilation)
        return {FILE: yaml.safe_dump(data, sort_keys=False, width=10**6)}

    def command(self, launch: Launch) -> list[str]:
        """`vllm serve` with its options from the rendered file."""
        place = ["--host", launch.host, "--port", str(launch.port)]
        return ["vllm", "serve", launch.model, "--config", str(launch.folder / FILE), *place, *launch.args]

    def environment(self, launch: Launch) -> dict[str, str]:
        """Nothing is sent home; steps are printed at this level, and the graph table every second."""
        del launch
        quiet = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1"}
        return {**quiet, "VLLM_LOGGING_LEVEL": "INFO", "VLLM_LOG_STATS_INTERVAL": "1"}

    def served_model(self, launch: Launch) -> str:
        """The name as given."""
        return option(launch.args, "--served-model-name", "--served_model_name") or launch.model

    def default_grids(self, config: RuntimeConfig, version: str) -> Grids:
        """Those of the list that vLLM computes from its limits."""
        default = config.model_copy(update={"decode_buckets": None, "token_buckets": None})
        return config_grids(default, parse_version(version))[0]

    def effective_grids(self, config: RuntimeConfig, version: str) -> tuple[Grids, tuple[Finding, ...]]:
        """Both grids that one list makes, and what cannot be seen of them."""
        number = parse_version(version)
        grids, findings = config_grids(config, number)
        return grids, (*untested(self.kind, self.versions, number), *findings, *_blind(number))

    def captured(self, lines: Iterable[str]) -> Grids:
        """The resolved sizes, if capture has finished."""
        return vllm_log.captured(lines)

    def kv_tokens(self, lines: Iterable[str]) -> int | None:
        """As in `GPU KV cache size: 1,048,576 tokens`."""
        return vllm_log.kv_tokens(lines)

    def reported(self, info: Mapping[str, Any], lines: Iterable[str]) -> dict[str, int]:
        """The limits from the lines of the arguments and of the resolved configuration."""
        del info
        return vllm_log.reported(lines)

    def phase(self, line: str) -> Phase | None:
        """The stage that a line announces."""
        return vllm_log.phase(line)

    def rows(self, lines: Iterable[str]) -> list[Row]:
        """Iteration lines and graph tables."""
        return vllm_log.rows(lines)

    def steps(self, rows: Sequence[Row], grids: Grids, config: RuntimeConfig) -> list[Step]:
        """One step for each iteration line with work; which graph it got follows from the sizes."""
        return [_step(row, grids, config) for row in rows if _has_work(row)]

    def refine(self, step: Step, row: Row) -> Step | None:
        """What the graph table says about a step."""
        table = row.get("graph_table")
        return vllm_log.refined(step, table) if isinstance(table, list) else None

    def failure(self, lines: Sequence[str], exit_code: int | None, phase: Phase | None) -> Failure:
        """Name what went wrong."""
        return vllm_log.failure(lines, exit_code, phase)

    def inspect(self, text: str, version: str, limits: Mapping[str, int] | None = None) -> Inspection:
        """Judge a file of options, or the JSON of `--compilation-config`."""
        number = parse_version(version)
        found = inspect_text(text, number, limits or {})
        findings = (*untested(self.kind, self.versions, number), *found.findings)
        return Inspection(found.requested, found.effective, findings)

    def check(self, text: str, version: str, limits: Mapping[str, int] | None = None) -> list[Finding]:
        """The findings of `inspect` alone."""
        return list(self.inspect(text, version, limits).findings)


def _switch(name: str, *, on: bool) -> str:
    return name if on else f"no-{name}"


def _has_work(row: Row) -> bool:
    return "iteration" in row and bool(row["context_requests"] or row["generation_requests"])


def _step(row: Row, grids: Grids, config: RuntimeConfig) -> Step:
    contexts, generations = int(row["context_requests"]), int(row["generation_requests"])
    tokens = int(row["context_tokens"]) + int(row["generation_tokens"])
    kind: Literal["decode", "tokens"] = "tokens" if contexts else "decode"
    bucket, replayed, reason = predict(kind, tokens if contexts else generations, grids, padding=True)
    if not contexts and not replayed:
        piecewise, found, _ = predict("tokens", tokens, grids, padding=True)
        if found and piecewise is not None:  # in requests, as decode sizes are
            bucket, replayed, reason = piecewise // (1 + config.draft_len), True, "piecewise graph"
    return Step(
        iteration=int(row["iteration"]),
        kind=kind,
        size=tokens if contexts else generations,
        bucket=bucket,
        replayed=replayed,
        reason=reason,
        predicted=True,
        step_ms=row["ms"],
        context_requests=contexts,
        generation_requests=generations,
    )


def _blind(version: Version) -> list[Finding]:
    if version < ITERATIONS:
        message = f"version `{version}` may print no iteration lines, so that no step can be seen"
        return [Finding("warning", "no-iterations", message, f"use `{ITERATIONS}` or newer")]
    if Version(0, 26) <= version < TABLE_ON_V2:
        message = f"version `{version}` fills no graph table with its second model runner: hits are predicted"
        return [
            Finding("note", "no-graph-table", message, "set `VLLM_USE_V2_MODEL_RUNNER: '0'` in `runtime.env`")
        ]
    return []
