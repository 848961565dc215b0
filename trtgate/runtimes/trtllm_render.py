"""Writes TensorRT-LLM's YAML: nested until 0.20, flat in 0.21, grouped from 1.0, `prefill_*` from 1.3."""

from typing import Any

import yaml

from trtgate.plans.config import RuntimeConfig
from trtgate.runtimes.trtllm_grids import (
    FLAT,
    GROUPED,
    OWN_TOKEN_LIST,
    PREFILL_KEYS,
    effective_decode,
    limits_of,
)
from trtgate.runtimes.versions import Version


def render_yaml(config: RuntimeConfig, version: Version) -> str:
    """The text of the configuration file; every setting is in it, so that no flag has to repeat one."""
    data: dict[str, Any] = {
        "max_batch_size": config.max_batch_size,
        "max_num_tokens": config.max_num_tokens,
        "max_seq_len": config.max_seq_len,
        "tensor_parallel_size": config.tensor_parallel,
        "enable_chunked_prefill": config.chunked_prefill,
        "kv_cache_config": {
            "free_gpu_memory_fraction": config.kv_memory_fraction,
            "enable_block_reuse": config.block_reuse,
        },
    }
    if config.tensor_parallel == 1:
        del data["tensor_parallel_size"]
    statistics = {"enable_iter_perf_stats": True, "print_iter_log": True}
    if version >= GROUPED:
        data |= statistics | _grouped(config, version)
    elif version >= FLAT:
        data |= statistics | _decode_flat(config) | _compile_group(config)
    else:
        data["pytorch_backend_config"] = statistics | _decode_flat(config) | _compile_nested(config)
    return _dump(data)


def decode_list(config: RuntimeConfig) -> tuple[int, ...]:
    """The decode sizes as written: what can never run is left out."""
    return effective_decode(config.decode_buckets or (), limits_of(config), padding=True)[0]


def token_list(config: RuntimeConfig) -> tuple[int, ...]:
    """The token sizes as written: what can never be captured is left out."""
    ceiling = limits_of(config).token_ceiling
    return tuple(size for size in config.token_buckets or () if size <= ceiling)


def _grouped(config: RuntimeConfig, version: Version) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if config.decode_buckets == ():
        data["cuda_graph_config"] = None
    elif config.decode_buckets is not None:
        data["cuda_graph_config"] = {"enable_padding": True, "batch_sizes": list(decode_list(config))}
    tokens = list(token_list(config))
    if not tokens:
        return data
    if version >= PREFILL_KEYS:
        data["prefill_cuda_graph_backend"] = "piecewise"
        data["prefill_capture_num_tokens"] = tokens
        data["torch_compile_config"] = {"enable_userbuffers": False}
        return data
    data["torch_compile_config"] = {"enable_piecewise_cuda_graph": True, "enable_userbuffers": False}
    if version >= OWN_TOKEN_LIST:
        data["torch_compile_config"]["capture_num_tokens"] = tokens
    return data


def _decode_flat(config: RuntimeConfig) -> dict[str, Any]:
    if config.decode_buckets is None:
        return {}
    if not config.decode_buckets:
        return {"use_cuda_graph": False}
    return {
        "use_cuda_graph": True,
        "cuda_graph_padding_enabled": True,
        "cuda_graph_batch_sizes": list(decode_list(config)),
    }


def _compile_group(config: RuntimeConfig) -> dict[str, Any]:
    if not config.token_buckets:
        return {}
    return {"torch_compile_config": {"enable_piecewise_cuda_graph": True, "enable_userbuffers": False}}


def _compile_nested(config: RuntimeConfig) -> dict[str, Any]:
    if not config.token_buckets:
        return {}
    return {
        "torch_compile_enabled": True,
        "torch_compile_piecewise_cuda_graph": True,
        "torch_compile_enable_userbuffers": False,
    }


class _Dumper(yaml.SafeDumper):
    """Lists of numbers on one line, mappings in the order given."""


def _flow_list(dumper: yaml.SafeDumper, values: list[Any]) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=True)


_Dumper.add_representer(list, _flow_list)


def _dump(data: dict[str, Any]) -> str:
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=10**6)
