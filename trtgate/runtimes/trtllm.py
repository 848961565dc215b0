"""The adapter for `trtllm-serve` with the PyTorch backend, 0.17 to 1.4."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal

from trtgate.plans.config import RuntimeConfig
from trtgate.runtimes import trtllm_log
from trtgate.runtimes.base import (
    LIMIT_NAMES,
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
from trtgate.runtimes.rows import refined, steps_from_rows
from trtgate.runtimes.trtllm_check import inspect_yaml
from trtgate.runtimes.trtllm_grids import config_grids
from trtgate.runtimes.trtllm_render import render_yaml
from trtgate.runtimes.versions import Version, parse_version

FILE = "config.yaml"
TELEMETRY = Version(1, 4, 0, 0)  # the first with `--no-telemetry`


class TensorRtLlm:
    """`trtllm-serve`; all settings are in one YAML file, so that no flag can contradict it."""

    kind = "tensorrt-llm"
    versions = (Version(0, 17), Version(1, 4, 0, 4))
    statistics: Literal["endpoint", "log"] = "endpoint"
    statistics_hint = "set `enable_iter_perf_stats: true` and let nobody else read `/metrics`"
    settle_s: float = 0.0

    def render(self, config: RuntimeConfig, version: str) -> dict[str, str]:
        """The YAML in the layout of the version; a newer version than known gets the newest known layout."""
        return {FILE: render_yaml(config, parse_version(version))}

    def command(self, launch: Launch) -> list[str]:
        """`trtllm-serve serve`; `--extra_llm_api_options` is the name that all versions accept."""
        place = ["--host", launch.host, "--port", str(launch.port)]
        file = ["--extra_llm_api_options", str(launch.folder / FILE)]
        quiet = ["--no-telemetry"] if parse_version(launch.version) >= TELEMETRY else []
        return ["trtllm-serve", "serve", launch.model, *place, *file, *quiet, *launch.args]

    def environment(self, launch: Launch) -> dict[str, str]:
        """Nothing is sent home, and the lines that name captured sizes are printed whatever the user's level is."""
        del launch
        return {"DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1", "TLLM_LOG_LEVEL": "info"}

    def served_model(self, launch: Launch) -> str:
        """The name of the folder for a local path, else the name as given."""
        named = option(launch.args, "--served_model_name", "--served-model-name")
        is_path = launch.model.startswith((".", "/", "~"))
        return named or (PurePath(launch.model).name if is_path else launch.model)

    def default_grids(self, config: RuntimeConfig, version: str) -> Grids:
        """Decode graphs without padding from 1.0 on, none before; token graphs only where asked for."""
        default = config.model_copy(update={"decode_buckets": None, "token_buckets": None})
        return config_grids(default, parse_version(version))[0]

    def effective_grids(self, config: RuntimeConfig, version: str) -> tuple[Grids, tuple[Finding, ...]]:
        """The grids after clamping, dropping and appending."""
        number = parse_version(version)
        grids, findings = config_grids(config, number)
        return grids, (*untested(self.kind, self.versions, number), *findings)

    def captured(self, lines: Iterable[str]) -> Grids:
        """The last block of capture lines."""
        return trtllm_log.captured(lines)

    def kv_tokens(self, lines: Iterable[str]) -> int | None:
        """As in `max tokens in paged KV cache (524384)`; its rows carry it too."""
        return trtllm_log.kv_tokens(lines)

    def reported(self, info: Mapping[str, Any], lines: Iterable[str]) -> dict[str, int]:
        """What `/server_info` holds of the limits; not every version holds any."""
        del lines
        return {name: info[name] for name in LIMIT_NAMES if type(info.get(name)) is int}

    def phase(self, line: str) -> Phase | None:
        """The stage that a line announces."""
        return trtllm_log.phase(line)

    def rows(self, lines: Iterable[str]) -> list[Row]:
        """Iteration lines (`print_iter_log`), which carry the step time that `/metrics` of 1.2 lacks."""
        return trtllm_log.rows(lines)

    def steps(self, rows: Sequence[Row], grids: Grids, config: RuntimeConfig) -> list[Step]:
        """One step for each row with work; decode batches are padded only where buckets were chosen."""
        padding = config.decode_buckets is not None
        return steps_from_rows(rows, grids, padding=padding, draft_len=config.draft_len)

    def refine(self, step: Step, row: Row) -> Step | None:
        """Add the host's step time and, where more was computed than scheduled, the observed padding."""
        return refined(step, row)

    def failure(self, lines: Sequence[str], exit_code: int | None, phase: Phase | None) -> Failure:
        """Name what went wrong."""
        return trtllm_log.failure(lines, exit_code, phase)

    def inspect(self, text: str, version: str, limits: Mapping[str, int] | None = None) -> Inspection:
        """Judge a YAML file written by hand."""
        number = parse_version(version)
        found = inspect_yaml(text, number, limits or {})
        findings = (*untested(self.kind, self.versions, number), *found.findings)
        return Inspection(found.requested, found.effective, findings)

    def check(self, text: str, version: str, limits: Mapping[str, int] | None = None) -> list[Finding]:
        """The findings of `inspect` alone."""
        return list(self.inspect(text, version, limits).findings)
