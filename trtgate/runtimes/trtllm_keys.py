"""Names of TensorRT-LLM's settings that changed, and from which version on each is known."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from trtgate.runtimes.base import Finding, Severity
from trtgate.runtimes.trtllm_grids import FLAT, GROUPED, OWN_TOKEN_LIST, PREFILL_KEYS
from trtgate.runtimes.versions import Version

NESTED = "pytorch_backend_config"
_EVER = Version(0, 0)
_NEVER = Version(1_000_000, 0)
_PADDING_ENABLED = (Version(1, 0, 0, 1), Version(1, 0, 0, 3))


@dataclass(frozen=True, slots=True)
class Key:
    """A setting by its dotted name, known from `since` and before `until`; `successor` is what follows it."""

    name: str
    successor: str = ""
    since: Version = _EVER
    until: Version = _NEVER
    deprecated: Version = _NEVER
    predecessor: str = ""


KEYS = {
    key.name: key
    for key in (
        Key(NESTED, "the same keys at the top level", until=FLAT),
        Key("use_cuda_graph", "cuda_graph_config (`null` switches graphs off)", until=GROUPED),
        Key("cuda_graph_batch_sizes", "cuda_graph_config.batch_sizes", until=GROUPED),
        Key("cuda_graph_max_batch_size", "cuda_graph_config.max_batch_size", until=GROUPED),
        Key("cuda_graph_padding_enabled", "cuda_graph_config.enable_padding", until=GROUPED),
        Key("torch_compile_enabled", "torch_compile_config", until=FLAT),
        Key("torch_compile_fullgraph", "torch_compile_config.enable_fullgraph", until=FLAT),
        Key("torch_compile_inductor_enabled", "torch_compile_config.enable_inductor", until=FLAT),
        Key(
            "torch_compile_piecewise_cuda_graph",
            "torch_compile_config.enable_piecewise_cuda_graph",
            until=FLAT,
        ),
        Key("torch_compile_enable_userbuffers", "torch_compile_config.enable_userbuffers", until=FLAT),
        Key("autotuner_enabled", "enable_autotuner", until=GROUPED),
        Key("enable_overlap_scheduler", "disable_overlap_scheduler (the other way round)", until=FLAT),
        Key("enable_trtllm_sampler", "sampler_type", until=OWN_TOKEN_LIST),
        Key("cuda_graph_config", since=GROUPED, predecessor="`use_cuda_graph` and `cuda_graph_batch_sizes`"),
        Key("cuda_graph_config.padding_enabled", "cuda_graph_config.enable_padding", *_PADDING_ENABLED),
        Key("torch_compile_config", since=FLAT, predecessor="`torch_compile_enabled`"),
        Key(
            "torch_compile_config.capture_num_tokens",
            "prefill_capture_num_tokens",
            since=OWN_TOKEN_LIST,
            deprecated=PREFILL_KEYS,
            predecessor="nothing: token graphs follow the decode sizes",
        ),
        Key(
            "torch_compile_config.enable_piecewise_cuda_graph",
            "prefill_cuda_graph_backend: piecewise",
            deprecated=PREFILL_KEYS,
        ),
        Key(
            "prefill_cuda_graph_backend",
            since=PREFILL_KEYS,
            predecessor="`torch_compile_config.enable_piecewise_cuda_graph`",
        ),
        Key(
            "prefill_capture_num_tokens",
            since=PREFILL_KEYS,
            predecessor="`torch_compile_config.capture_num_tokens`",
        ),
    )
}
GROUPS = {
    "cuda_graph_config": ("batch_sizes", "max_batch_size", "enable_padding", "mode", "padding_enabled"),
    "torch_compile_config": (
        "enable_fullgraph",
        "enable_inductor",
        "enable_piecewise_cuda_graph",
        "capture_num_tokens",
        "enable_userbuffers",
        "max_num_streams",
        "compile_only_piecewise_graphs",
    ),
}
COMMON = (
    "batch_wait_timeout_ms",
    "disable_overlap_scheduler",
    "enable_attention_dp",
    "enable_autotuner",
    "enable_chunked_prefill",
    "enable_iter_perf_stats",
    "enable_iter_req_stats",
    "kv_cache_config",
    "max_batch_size",
    "max_beam_width",
    "max_num_tokens",
    "max_seq_len",
    "max_stats_len",
    "print_iter_log",
    "return_perf_metrics",
    "speculative_config",
    "stream_interval",
    "tensor_parallel_size",
)


def check_keys(data: Mapping[str, Any], version: Version) -> Iterator[Finding]:
    """A finding for each key that this version does not know, with the name that it does know."""
    names = [*data, *(data[NESTED] if isinstance(data.get(NESTED), dict) else ())]
    for name in names:
        yield from _check_key(str(name), version)
        group = GROUPS.get(name)
        if group is not None and isinstance(data.get(name), dict):
            for inner in data[name]:
                yield from _check_inner(name, str(inner), group, version)


def _check_inner(name: str, inner: str, known: tuple[str, ...], version: Version) -> Iterator[Finding]:
    dotted = f"{name}.{inner}"
    if inner in known:
        if dotted in KEYS:
            yield from _check_key(dotted, version)
        return
    close = get_close_matches(inner, known, n=1, cutoff=0.5)
    hint = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(known)}"
    yield Finding("error", "unknown-key", f"`{dotted}` is no setting of any version", hint)


def _check_key(name: str, version: Version) -> Iterator[Finding]:
    key = KEYS.get(name)
    if key is None:
        yield from _check_spelling(name)
    elif version >= key.until or (version < key.since and not key.predecessor):
        message = f"`{name}` is unknown to version `{version}`"
        yield Finding("error", "renamed-key", message, f"write {_quoted(key.successor)}")
    elif version < key.since:
        message = f"`{name}` is unknown before version `{key.since}`"
        yield Finding("error", "too-new-key", message, f"version `{version}` has {key.predecessor}")
    elif version >= key.deprecated:
        message = f"`{name}` is deprecated in version `{version}`"
        yield Finding("warning", "deprecated-key", message, f"write {_quoted(key.successor)}")


def _check_spelling(name: str) -> Iterator[Finding]:
    known = (*KEYS, *COMMON)
    if name in known:
        return
    close = get_close_matches(name, known, n=1, cutoff=0.85)
    if close:
        severity: Severity = "warning"
        yield Finding(severity, "unknown-key", f"`{name}` looks misspelt", f"did you mean `{close[0]}`?")


def _quoted(successor: str) -> str:
    name, sign, rest = successor.partition(" (")
    return f"`{name}`{sign}{rest}"
