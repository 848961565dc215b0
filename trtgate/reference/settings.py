"""What a server was told: flags and YAML joined as TensorRT-LLM 1.2 joins them, where the YAML wins."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from .faults import Faults
from .grids import DEFAULT_TOKENS, default_batch_sizes, effective_batch_sizes, effective_tokens

DTYPES = ("auto", "float64", "float32", "bfloat16", "float16")
KV_BLOCK_TOKENS = 32
LEVELS = {"internal_error": 0, "error": 1, "warning": 2, "info": 3, "verbose": 4, "debug": 4, "trace": 4}

TOP_KEYS: dict[str, type] = {
    "backend": str,
    "batch_wait_timeout_ms": float,
    "cuda_graph_config": dict,
    "disable_overlap_scheduler": bool,
    "dtype": str,
    "enable_attention_dp": bool,
    "enable_autotuner": bool,
    "enable_chunked_prefill": bool,
    "enable_iter_perf_stats": bool,
    "enable_iter_req_stats": bool,
    "kv_cache_config": dict,
    "max_batch_size": int,
    "max_beam_width": int,
    "max_num_tokens": int,
    "max_seq_len": int,
    "max_stats_len": int,
    "perf_metrics_max_requests": int,
    "prefill_capture_num_tokens": list,
    "prefill_cuda_graph_backend": str,
    "print_iter_log": bool,
    "return_perf_metrics": bool,
    "stream_interval": int,
    "tensor_parallel_size": int,
    "torch_compile_config": dict,
}
GROUP_KEYS: dict[str, dict[str, type]] = {
    "cuda_graph_config": {"batch_sizes": list, "enable_padding": bool, "max_batch_size": int},
    "kv_cache_config": {
        "dtype": str,
        "enable_block_reuse": bool,
        "free_gpu_memory_fraction": float,
        "iteration_stats_interval": int,
        "max_tokens": int,
        "tokens_per_block": int,
    },
    "torch_compile_config": {
        "capture_num_tokens": list,
        "enable_fullgraph": bool,
        "enable_inductor": bool,
        "enable_piecewise_cuda_graph": bool,
        "enable_userbuffers": bool,
        "max_num_streams": int,
    },
}
ONLY_VALUE = {
    "backend": "pytorch",
    "max_beam_width": 1,
    "tensor_parallel_size": 1,
    "enable_attention_dp": False,
}


class SettingsError(ValueError):
    """A flag or YAML entry that the server refuses; the text names it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One server's resolved settings; sizes in requests and tokens, `max_seq_len` 0 means the model's own."""

    model: str
    host: str = "localhost"
    port: int = 8000
    max_batch_size: int = 2048
    max_num_tokens: int = 8192
    max_seq_len: int = 0
    chunked_prefill: bool = False
    kv_fraction: float = 0.9
    kv_max_tokens: int = 0
    decode_list: tuple[int, ...] = ()
    decode_padding: bool = False
    token_list: tuple[int, ...] = ()
    iter_stats: bool = False
    iter_log: bool = False
    max_stats_len: int = 1000
    dtype: str = "auto"
    seed: int = 0
    threads: int = 1
    log_level: str = "info"
    faults: Faults = field(default_factory=Faults)

    @property
    def decode_grid(self) -> tuple[int, ...]:
        """The decode buckets that the engine keeps, ascending."""
        return effective_batch_sizes(
            self.decode_list, min(self.max_batch_size, self.max_num_tokens), self.decode_padding
        )

    @property
    def token_grid(self) -> tuple[int, ...]:
        """The token buckets that the engine keeps, ascending; a kept one can still fail to be captured."""
        return effective_tokens(self.token_list, self.max_num_tokens)


def read_options(path: Path) -> dict[str, Any]:
    """The YAML file as a mapping with known keys and types; refuses (`SettingsError`) anything else."""
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"`{path}` cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict):
        raise SettingsError(f"`{path}`: Configuration file root must be a mapping.")
    _check_keys(loaded, TOP_KEYS, "")
    for group, keys in GROUP_KEYS.items():
        if isinstance(loaded.get(group), dict):
            _check_keys(loaded[group], keys, f"{group}.")
    for name, value in ONLY_VALUE.items():
        if loaded.get(name, value) != value:
            raise SettingsError(f"`{name}: {loaded[name]}`: the reference runtime offers `{value}` only")
    return loaded


def apply_options(settings: Settings, options: dict[str, Any]) -> Settings:
    """The settings with the YAML's values in place of the flags', and both grids resolved."""
    plain = {
        "max_batch_size": "max_batch_size",
        "max_num_tokens": "max_num_tokens",
        "max_seq_len": "max_seq_len",
        "enable_chunked_prefill": "chunked_prefill",
        "enable_iter_perf_stats": "iter_stats",
        "print_iter_log": "iter_log",
        "max_stats_len": "max_stats_len",
        "dtype": "dtype",
    }
    given: dict[str, Any] = {to: options[name] for name, to in plain.items() if options.get(name) is not None}
    cache = options.get("kv_cache_config") or {}
    given["kv_fraction"] = cache.get("free_gpu_memory_fraction") or settings.kv_fraction
    given["kv_max_tokens"] = cache.get("max_tokens") or settings.kv_max_tokens
    sizes, padding = _decode_list(options)
    resolved = replace(
        settings, **given, decode_list=sizes, decode_padding=padding, token_list=_token_list(options)
    )
    for name in ("max_batch_size", "max_num_tokens", "threads"):
        if getattr(resolved, name) < 1:
            raise SettingsError(f"`{name}: {getattr(resolved, name)}`: must be at least 1")
    if resolved.dtype not in DTYPES:
        raise SettingsError(f"`dtype: {resolved.dtype}`: must be one of {', '.join(DTYPES)}")
    if not 0 < resolved.kv_fraction <= 1:
        raise SettingsError(f"`free_gpu_memory_fraction: {resolved.kv_fraction}`: must be in (0, 1]")
    return resolved


def _decode_list(options: dict[str, Any]) -> tuple[tuple[int, ...], bool]:
    group = options.get("cuda_graph_config", {})
    if group is None:
        return (), False
    padding, top = bool(group.get("enable_padding")), group.get("max_batch_size") or 0
    if group.get("batch_sizes") is None:
        return default_batch_sizes(top, padding), padding
    sizes = _sizes(group["batch_sizes"], "cuda_graph_config.batch_sizes")
    if top and sizes != default_batch_sizes(top, padding):
        raise SettingsError(
            "Please don't set both cuda_graph_config.batch_sizes and cuda_graph_config.max_batch_size"
        )
    return sizes, padding


def _token_list(options: dict[str, Any]) -> tuple[int, ...]:
    compiled = options.get("torch_compile_config") or {}
    legacy_on, legacy = compiled.get("enable_piecewise_cuda_graph"), compiled.get("capture_num_tokens")
    backend, sizes = options.get("prefill_cuda_graph_backend"), options.get("prefill_capture_num_tokens")
    if backend not in {None, "disabled", "piecewise"}:
        raise SettingsError(f"`prefill_cuda_graph_backend: {backend}`: only `piecewise` is offered")
    if backend is not None and legacy_on is not None and legacy_on != (backend == "piecewise"):
        raise SettingsError("enable_piecewise_cuda_graph conflicts with prefill_cuda_graph_backend")
    if sizes is not None and legacy is not None and sorted(set(sizes)) != sorted(set(legacy)):
        raise SettingsError("capture_num_tokens conflicts with prefill_capture_num_tokens")
    if not legacy_on and backend != "piecewise":
        return ()
    chosen = sizes if sizes is not None else legacy
    return DEFAULT_TOKENS if chosen is None else _sizes(chosen, "capture_num_tokens")


def _sizes(values: list[Any], name: str) -> tuple[int, ...]:
    if not values or any(type(value) is not int or value < 1 for value in values):
        raise SettingsError(f"`{name}: {values}`: must be a list of whole numbers above 0")
    return tuple(sorted(set(values)))


def _check_keys(loaded: dict[str, Any], known: dict[str, type], prefix: str) -> None:
    for name, value in loaded.items():
        if name not in known:
            raise SettingsError(f"`{prefix}{name}`: Extra inputs are not permitted")
        kind = known[name]
        fits = type(value) is kind or (kind is float and type(value) is int)
        if value is not None and not fits:
            raise SettingsError(f"`{prefix}{name}: {value}`: must be of type {kind.__name__}")
