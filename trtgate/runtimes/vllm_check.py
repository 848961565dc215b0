"""Judges vLLM's options written by hand: a file for `--config`, or the JSON of `--compilation-config`."""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import yaml

from trtgate.runtimes.base import Finding, Grids, Inspection, Severity
from trtgate.runtimes.sizes import Sizes, read_sizes
from trtgate.runtimes.versions import Version
from trtgate.runtimes.vllm_grids import (
    KEEPS_FULL,
    MODES,
    Limits,
    Mode,
    above_budget,
    default_sizes,
    grids_of,
    uncovered,
)

RENAMED_SIZES = Version(0, 12)
DEFAULTS = {"max_num_seqs": 1024, "max_num_batched_tokens": 8192}
COMPILATION = (
    "mode", "level", "backend", "custom_ops", "splitting_ops", "use_inductor", "use_inductor_graph_partition",
    "cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size", "cudagraph_num_of_warmups",
    "cudagraph_copy_inputs", "cudagraph_specialize_lora", "compile_sizes", "compile_ranges_endpoints",
    "pass_config", "inductor_compile_config", "cache_dir", "debug_dump_path", "cudagraph_mm_encoder",
    "compile_mm_encoder", "full_cuda_graph", "use_cudagraph", "dynamic_shapes_config", "local_cache_dir",
)  # fmt: skip

FOREIGN = (
    "cuda_graph_config",
    "torch_compile_config",
    "pytorch_backend_config",
    "prefill_cuda_graph_backend",
    "prefill_capture_num_tokens",
    "kv_cache_config",
    "enable_iter_perf_stats",
    "print_iter_log",
    "max_batch_size",
    "max_num_tokens",
)


def inspect_text(text: str, version: Version, limits: Mapping[str, int]) -> Inspection:
    """The grids asked for, those in effect, and every finding, errors first."""
    judge = _Judge(version)
    options = judge.read(text)
    if options is None:
        return Inspection(Grids(), Grids(), tuple(judge.findings))
    judge.foreign(options)
    compilation = judge.compilation(options)
    bounds = judge.limits(options, limits)
    sizes = judge.sizes(options, compilation)
    mode = judge.mode(options, compilation)
    requested = sizes if sizes is not None else default_sizes(bounds, version)
    kept = tuple(size for size in requested if size <= bounds.max_num_batched_tokens)
    if kept != requested:
        judge.findings.append(above_budget([size for size in requested if size not in kept], bounds))
    effective = grids_of(kept, mode, bounds)
    judge.findings += uncovered(effective, mode, bounds)
    judge.other(options, sizes)
    order = {"error": 0, "warning": 1, "note": 2}
    ranked = sorted(judge.findings, key=lambda finding: order[finding.severity])
    return Inspection(grids_of(requested, mode, bounds), effective, tuple(ranked))


@dataclass(slots=True)
class _Judge:
    """One text under one version; collects findings while it reads."""

    version: Version
    findings: list[Finding] = field(default_factory=list)

    def add(self, severity: Severity, code: str, message: str, hint: str = "") -> None:
        """Keep a finding."""
        self.findings.append(Finding(severity, code, message, hint))

    def foreign(self, options: Mapping[str, Any]) -> None:
        """Settings of TensorRT-LLM, which vLLM refuses at start."""
        found = [key for key in FOREIGN if key in options]
        if found:
            names = ", ".join(f"`{name}`" for name in found)
            self.add(
                "error",
                "wrong-runtime",
                f"{names} belong to TensorRT-LLM",
                "check it with `--runtime tensorrt-llm`",
            )

    def read(self, text: str) -> dict[str, Any] | None:
        """The options by name with underscores; JSON stands for the compilation group alone."""
        if text.lstrip().startswith("{"):
            group = self.json(text, "the text")
            return None if group is None else {"compilation_config": group}
        try:
            root = yaml.safe_load(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f" in line {mark.line + 1}" if mark else ""
            self.add("error", "invalid-yaml", f"not valid YAML{where}", "check indentation and quotes")
            return None
        if root is None:
            return {}
        if not isinstance(root, dict):
            kind = "a list" if isinstance(root, list) else f"`{root}`"
            self.add("error", "no-mapping", f"the file holds {kind}; expected `key: value` lines")
            return None
        return {str(key).replace("-", "_"): value for key, value in root.items()}

    def json(self, text: str, name: str) -> dict[str, Any] | None:
        """A JSON object; text of a Python dictionary gets its own message."""
        try:
            value = json.loads(text)
        except ValueError as error:
            if _is_python(text):
                message = f"{name} is written with single quotes, as Python does; the option takes JSON only"
                self.add("error", "not-json", message, "use double quotes, `true`, `false` and `null`")
            else:
                self.add("error", "not-json", f"{name} is not valid JSON: {error}", "check quotes and commas")
            return None
        if not isinstance(value, dict):
            self.add(
                "error", "not-json", f"{name} holds no JSON object", 'as in `{"cudagraph_mode": "FULL"}`'
            )
            return None
        return value

    def compilation(self, options: dict[str, Any]) -> dict[str, Any]:
        """The compilation group, its keys checked."""
        value = options.get("compilation_config")
        if isinstance(value, str):
            value = self.json(value, "`compilation-config`")
        group = value if isinstance(value, dict) else {}
        for key in group:
            if key not in COMPILATION:
                close = get_close_matches(str(key).replace("-", "_"), COMPILATION, n=1, cutoff=0.7)
                hint = f"did you mean `{close[0]}`?" if close else "see `vllm serve --help=CompilationConfig`"
                self.add("error", "unknown-key", f"`compilation-config.{key}` is no setting", hint)
        if "level" in group and self.version >= RENAMED_SIZES:
            message = f"`compilation-config.level` is unknown to version `{self.version}`"
            self.add("error", "renamed-key", message, "write `mode`")
        return group

    def limits(self, options: dict[str, Any], flags: Mapping[str, int]) -> Limits:
        """Limits of file and command line; one that stands in both is refused."""
        given = {
            "max_num_seqs": flags.get("max_batch_size"),
            "max_num_batched_tokens": flags.get("max_num_tokens"),
        }
        found = {}
        for name, default in DEFAULTS.items():
            value = options.get(name)
            flag = given[name] if given[name] is not None else flags.get(name)
            if value is not None and (type(value) is not int or value < 1):
                self.add("error", "bad-limit", f"`{name}` is `{value}`; expected a whole number above 0")
                value = None
            if value is not None and flag is not None:
                message = (
                    f"`{name}` is {flag} on the command line and {value} in the file; the command line wins"
                )
                self.add("error", "given-twice", message, "give it in one place only")
            found[name] = flag if flag is not None else value if value is not None else default
        return Limits(found["max_num_seqs"], found["max_num_batched_tokens"], flags.get("draft_len", 0))

    def sizes(self, options: dict[str, Any], group: dict[str, Any]) -> Sizes | None:
        """The sizes given under any of their names; `None` where the runtime computes them."""
        places = {
            "cuda_graph_sizes": options.get("cuda_graph_sizes"),
            "cudagraph_capture_sizes": options.get("cudagraph_capture_sizes"),
            "compilation-config.cudagraph_capture_sizes": group.get("cudagraph_capture_sizes"),
        }
        used = {name: value for name, value in places.items() if value is not None}
        if len(used) > 1:
            names = " and ".join(f"`{name}`" for name in used)
            self.add(
                "error", "given-twice", f"{names} are mutually exclusive", "keep `cudagraph_capture_sizes`"
            )
        if "cuda_graph_sizes" in used:
            self._old_sizes(used.pop("cuda_graph_sizes"))
        if not used:
            return None
        name, value = next(iter(used.items()))
        sizes, findings = read_sizes(value, name)
        self.findings += findings
        maximum = options.get("max_cudagraph_capture_size", group.get("max_cudagraph_capture_size"))
        if sizes and maximum is not None and maximum != sizes[-1]:
            message = (
                f"`max_cudagraph_capture_size` {maximum} is not the largest entry {sizes[-1]} of `{name}`"
            )
            self.add("error", "both-given", message, f"give `{name}` alone")
        return sizes

    def _old_sizes(self, value: object) -> None:
        values = value if isinstance(value, list) else [value]
        if len(values) == 1:
            meaning, successor = f"maximum {values[0]}", "max_cudagraph_capture_size"
        else:
            meaning, successor = f"the list {', '.join(map(str, values))}", "cudagraph_capture_sizes"
        if self.version >= RENAMED_SIZES:
            message = f"`cuda_graph_sizes` ({meaning}) is unknown to version `{self.version}`"
            self.add("error", "renamed-key", message, f"write `{successor}`")
        else:
            self.add("note", "meaning", f"`cuda_graph_sizes` means {meaning}")

    def mode(self, options: dict[str, Any], group: dict[str, Any]) -> Mode:
        """The graph mode in effect; without compilation there are no piecewise graphs."""
        if options.get("enforce_eager") is True:
            return "NONE"
        asked = str(group.get("cudagraph_mode", "FULL_AND_PIECEWISE")).upper()
        mode = next((known for known in MODES if known == asked), None)
        if mode is None:
            message = f"`cudagraph_mode` is `{asked}`"
            self.add("error", "bad-mode", message, f"one of {', '.join(MODES)}")
            return "NONE"
        level = group.get("mode", group.get("level", 3))
        if level in {3, "VLLM_COMPILE"} or "PIECEWISE" not in mode:
            return mode
        left: Mode = "FULL_DECODE_ONLY" if self.version >= KEEPS_FULL and mode != "PIECEWISE" else "NONE"
        message = f"`cudagraph_mode` {mode} becomes {left}: `mode` {level} makes no piecewise graphs"
        self.add("error", "mode-overridden", message, "leave `mode` out, or ask for `FULL_DECODE_ONLY`")
        return left

    def other(self, options: dict[str, Any], sizes: Sizes | None) -> None:
        """What makes the options unfit for a gate."""
        if options.get("enforce_eager") is True and sizes:
            message = "`cudagraph_capture_sizes` has no effect beside `enforce-eager`"
            self.add("error", "no-effect", message, "remove one of the two")
        if options.get("disable_log_stats") is True:
            message = "`disable-log-stats` is on: neither graph table nor metrics can be read"
            self.add("error", "statistics-off", message, "remove it")
        if options.get("enable_logging_iteration_details") is not True and "max_num_seqs" in options:
            message = "`enable-logging-iteration-details` is not on: no step can be seen"
            self.add("warning", "statistics-off", message, "write `enable-logging-iteration-details: true`")


def _is_python(text: str) -> bool:
    try:
        return isinstance(ast.literal_eval(text.strip()), dict)
    except (ValueError, SyntaxError):
        return False
