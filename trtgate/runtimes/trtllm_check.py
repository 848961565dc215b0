"""Judges a TensorRT-LLM configuration written by hand: renamed keys, conflicts, sizes that can never run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from trtgate.runtimes.base import Finding, Grids, Inspection
from trtgate.runtimes.sizes import Sizes, read_sizes, wide_gap
from trtgate.runtimes.trtllm_grids import (
    DEFAULT_TOKENS,
    GROUPED,
    OWN_TOKEN_LIST,
    PREFILL_KEYS,
    Limits,
    effective_decode,
    effective_tokens,
    generated_decode,
)
from trtgate.runtimes.trtllm_keys import NESTED, check_keys
from trtgate.runtimes.versions import Version

EMPTY_IS_FINE = PREFILL_KEYS
FLAG_WINS = PREFILL_KEYS
LIMITS = {"max_batch_size": 2048, "max_num_tokens": 8192, "max_seq_len": None}


def inspect_yaml(text: str, version: Version, limits: Mapping[str, int]) -> Inspection:
    """The grids asked for, those in effect, and every finding, errors first."""
    data, findings = read_mapping(text, version)
    if data is None:
        return Inspection(Grids(), Grids(), tuple(findings))
    judge = _Judge(_flattened(data), version, findings)
    judge.findings += check_keys(data, version)
    bounds = judge.limits(limits)
    decode, padding = judge.decode()
    tokens = judge.tokens(decode)
    kept = judge.effective(decode, tokens, bounds, padding=padding)
    judge.other()
    order = {"error": 0, "warning": 1, "note": 2}
    ranked = sorted(judge.findings, key=lambda finding: order[finding.severity])
    return Inspection(Grids(decode, tokens), kept, tuple(ranked))


def read_mapping(text: str, version: Version) -> tuple[dict[str, Any] | None, list[Finding]]:
    """The one mapping that a file holds; an empty file is one without settings, which old versions cannot read."""
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        return None, [
            Finding("error", "invalid-yaml", f"not valid YAML{where}", "check indentation and quotes")
        ]
    if len(documents) > 1:
        message = f"{len(documents)} documents in one file; the runtime reads one"
        return None, [Finding("error", "several-documents", message, "remove the lines `---`")]
    root = documents[0] if documents else None
    if root is None:
        if version >= EMPTY_IS_FINE:
            return {}, []
        message = f"the file holds no settings, and version `{version}` fails on an empty file"
        return {}, [Finding("error", "empty-file", message, "write `max_batch_size` at least")]
    if not isinstance(root, dict):
        kind = "a list" if isinstance(root, list) else f"`{root}`"
        return None, [Finding("error", "no-mapping", f"the file holds {kind}; expected `key: value` lines")]
    return root, []


def _flattened(data: dict[str, Any]) -> dict[str, Any]:
    """All settings at the top level, as from 0.21 on."""
    nested = data.get(NESTED)
    return {**data, **nested} if isinstance(nested, dict) else data


@dataclass(slots=True)
class _Judge:
    """One file under one version; collects findings while it reads."""

    data: dict[str, Any]
    version: Version
    findings: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Keep a finding."""
        self.findings.append(finding)

    def error(self, code: str, message: str, hint: str = "") -> None:
        """Keep an error."""
        self.add(Finding("error", code, message, hint))

    def group(self, name: str) -> dict[str, Any]:
        """A group of settings; `{}` where it is absent or no mapping."""
        value = self.data.get(name)
        return value if isinstance(value, dict) else {}

    def limits(self, flags: Mapping[str, int]) -> Limits:
        """The limits from file and command line; one that stands in both is refused."""
        found: dict[str, int | None] = dict(LIMITS)
        for name in LIMITS:
            value = self.data.get(name)
            if value is not None and (type(value) is not int or value < 1):
                self.error("bad-limit", f"`{name}` is `{value}`; expected a whole number above 0")
                value = None
            flag = flags.get(name)
            if value is not None and flag is not None:
                self._twice(name, flag, value)
            flag_first = self.version >= FLAG_WINS
            given = [flag, value] if flag_first else [value, flag]
            found[name] = next((number for number in given if number is not None), found[name])
        draft = self.group("speculative_config").get("max_draft_len", flags.get("draft_len", 0))
        batch, tokens = found["max_batch_size"], found["max_num_tokens"]
        assert batch is not None and tokens is not None  # noqa: PT018 - both have defaults
        return Limits(batch, tokens, found["max_seq_len"], draft if type(draft) is int else 0)

    def _twice(self, name: str, flag: int, value: int) -> None:
        winner = "the command line" if self.version >= FLAG_WINS else "the file"
        message = (
            f"`{name}` is {flag} on the command line and {value} in the file; "
            f"in version `{self.version}` {winner} wins"
        )
        self.error("given-twice", message, "give it in one place only")

    def decode(self) -> tuple[Sizes, bool]:
        """The decode sizes asked for, and whether batches are padded to them."""
        if self.version < GROUPED and "cuda_graph_config" not in self.data:
            return self._decode_flat()
        if "cuda_graph_config" in self.data and self.data["cuda_graph_config"] is None:
            return (), False
        group = self.group("cuda_graph_config")
        padding = group.get("enable_padding") is True
        maximum = group.get("max_batch_size") or 0
        if group.get("batch_sizes") is None:
            return generated_decode(maximum, padding=padding, version=self.version), padding
        sizes, findings = read_sizes(group["batch_sizes"], "cuda_graph_config.batch_sizes")
        self.findings += findings
        if maximum and sizes:
            self._both(maximum, sizes, padding)
        return sizes or (), padding

    def _decode_flat(self) -> tuple[Sizes, bool]:
        if self.data.get("use_cuda_graph") is not True:
            if self.data.get("cuda_graph_batch_sizes"):
                self._no_effect("cuda_graph_batch_sizes", "use_cuda_graph: true")
            return (), False
        padding = self.data.get("cuda_graph_padding_enabled") is True
        maximum = self.data.get("cuda_graph_max_batch_size") or 0
        if self.data.get("cuda_graph_batch_sizes") is None:
            return generated_decode(maximum, padding=padding, version=self.version), padding
        sizes, findings = read_sizes(self.data["cuda_graph_batch_sizes"], "cuda_graph_batch_sizes")
        self.findings += findings
        return sizes or (), padding

    def _both(self, maximum: int, sizes: Sizes, padding: bool) -> None:
        """The two ways to name decode sizes, together: what each version makes of it."""
        both = "`cuda_graph_config` gives both `max_batch_size` and `batch_sizes`"
        hint = "give `batch_sizes` alone: it wins where both are accepted"
        if self.version >= PREFILL_KEYS:
            fits, rule = maximum == sizes[-1], f"{maximum} is not the largest entry {sizes[-1]}"
        else:
            fits = sizes == generated_decode(maximum, padding=padding, version=self.version)
            rule = f"the list is not the one that version `{self.version}` generates for {maximum}"
            rule += "" if maximum == sizes[-1] else f" ({maximum} is not the largest entry {sizes[-1]})"
        if fits:
            self.add(Finding("warning", "both-given", both, hint))
        else:
            self.error("both-given", f"{both}, and {rule}", hint)

    def tokens(self, decode: Sizes) -> Sizes:
        """The token sizes asked for."""
        group = self.group("torch_compile_config")
        old_on = group.get("enable_piecewise_cuda_graph") is True
        old_on = old_on or self.data.get("torch_compile_piecewise_cuda_graph") is True
        backend = self.data.get("prefill_cuda_graph_backend")
        new, old = self.data.get("prefill_capture_num_tokens"), group.get("capture_num_tokens")
        if new is not None and old is not None:
            names = "`capture_num_tokens` and `prefill_capture_num_tokens`"
            self.error("given-twice", f"{names} are both given", "keep `prefill_capture_num_tokens`")
        key = "prefill_capture_num_tokens" if new is not None else "torch_compile_config.capture_num_tokens"
        listed = new if new is not None else old
        sizes: Sizes | None = None
        if listed is not None:
            sizes, findings = read_sizes(listed, key)
            self.findings += findings
        if not old_on and backend not in {"piecewise", "breakable"}:
            if listed is not None:
                switch = "prefill_cuda_graph_backend: piecewise"
                older = "enable_piecewise_cuda_graph: true"
                self._no_effect(key, switch if self.version >= PREFILL_KEYS else older)
            return ()
        if backend == "breakable" and "torch_compile_config" in self.data:
            message = "`prefill_cuda_graph_backend: breakable` forbids `torch_compile_config`"
            self.error("conflict", message, "remove `torch_compile_config`, or write `piecewise`")
        speculative = self.group("speculative_config")
        for name in ("mtp_eagle_one_model", "eagle3_one_model"):
            if speculative.get(name) is False:
                message = f"token graphs do not go with two-model speculation (`{name}: false`)"
                self.error("conflict", message, f"write `{name}: true`, or switch token graphs off")
        if sizes is not None:
            self.findings += wide_gap(sizes, key)
            return sizes
        has_default = self.version >= Version(1, 2, 0, 0)
        return DEFAULT_TOKENS if has_default else decode

    def _no_effect(self, key: str, switch: str) -> None:
        message = f"`{key}` has no effect while the feature is off"
        self.add(Finding("error", "no-effect", message, f"write `{switch}`, or remove the list"))

    def effective(self, decode: Sizes, tokens: Sizes, bounds: Limits, *, padding: bool) -> Grids:
        """The grids that are captured."""
        kept, findings = effective_decode(decode, bounds, padding=padding)
        written = "batch_sizes" in self.group("cuda_graph_config") or "cuda_graph_batch_sizes" in self.data
        if written or padding:
            self.findings += findings
        if kept and kept[-1] < bounds.decode_ceiling:
            self.add(_eager(kept[-1], bounds.decode_ceiling))
        if kept and not padding and kept != tuple(range(1, kept[-1] + 1)):
            message = "`enable_padding` is off: only batches of exactly a listed size use a graph"
            self.add(Finding("warning", "padding-off", message, "write `enable_padding: true`"))
        if tokens and self.version < OWN_TOKEN_LIST:
            tokens = kept
        kept_tokens, more = effective_tokens(tokens, bounds, self.version)
        self.findings += more
        return Grids(kept, kept_tokens)

    def other(self) -> None:
        """What makes a configuration unfit for a gate."""
        if self.data.get("enable_iter_perf_stats") is not True:
            message = (
                "`enable_iter_perf_stats` is not on: `/metrics` stays empty and no graph hit can be seen"
            )
            self.add(Finding("warning", "statistics-off", message, "write `enable_iter_perf_stats: true`"))
        if self.data.get("return_perf_metrics") is True:
            message = (
                "`return_perf_metrics` is on: its own reader may empty `/metrics` before trtgate reads it"
            )
            self.add(Finding("warning", "second-reader", message, "leave it off while statistics are read"))
        interval = self.data.get("stream_interval", 1)
        if type(interval) is int and interval > 1:
            message = f"`stream_interval` is {interval}: several tokens come at once, so that gaps are no token gaps"
            self.add(Finding("warning", "stream-interval", message, "write `stream_interval: 1` for a gate"))
        cache = self.group("kv_cache_config")
        if cache and "free_gpu_memory_fraction" not in cache and self.version < Version(1, 2, 0, 0):
            message = (
                f"version `{self.version}` replaces `kv_cache_config` whole: a fraction given by flag is lost"
            )
            hint = "write `free_gpu_memory_fraction` into the group"
            self.add(Finding("warning", "replaced-group", message, hint))


def _eager(last: int, ceiling: int) -> Finding:
    message = f"decode batches of {last + 1} to {ceiling} run without a graph"
    return Finding(
        "warning", "eager-above-decode", message, f"add {ceiling} to the list, or lower `max_batch_size`"
    )
