"""What a plan is made of: the trace, scaled and simulated in two parts, and the costs of a step."""

import json
from dataclasses import dataclass
from pathlib import Path

from trtgate.errors import UsageError
from trtgate.evidence.environment import read_platform
from trtgate.plans.budget import KvBudget
from trtgate.plans.costs import (
    DEVICES,
    MODELS,
    Costs,
    DeviceShape,
    ModelShape,
    model_shape_from_config,
    prior_costs,
)
from trtgate.plans.histogram import Histogram, Limits
from trtgate.plans.simulate import simulate
from trtgate.profile import Profile
from trtgate.record import read_text
from trtgate.traces import read_trace
from trtgate.traces.base import Trace

# Draining longer than this share of the span and one long answer after the last arrival means overload.
BEHIND = 0.1
LONG_ANSWER_S = 30.0


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """What a plan is made of; `fit` is the part that buckets are chosen from, `later` the part they are shown on."""

    profile: Profile
    trace: Trace
    fit: Histogram
    later: Histogram
    costs: Costs


def read_inputs(
    profile: Profile,
    trace_path: Path | None,
    costs_path: Path | None,
    trace_format: str | None,
    *,
    any_platform: bool = False,
) -> Inputs:
    """Read and scale the trace, simulate both of its parts, find the costs; refuses what does not fit together."""
    path = trace_path or profile.traffic.trace
    if path is None:
        raise UsageError(f"the profile `{profile.name}` names no trace", "give one with `--trace FILE`")
    costs = read_costs(profile, costs_path, any_platform=any_platform)
    trace = scale_trace(read_trace(path, format=trace_format or profile.traffic.format), profile)
    if trace.span_s <= 0:
        raise UsageError(f"all requests of `{path}` arrive at one instant", "give a trace with arrival times")
    first, second = trace.split(profile.traffic.fit_fraction)
    room = max(kv_budget(profile, costs, trace).tokens(0), profile.limits.max_seq_len)
    limits = limits_of(profile).model_copy(update={"kv_tokens": room})
    speed_up = profile.traffic.speed_up
    return Inputs(
        profile,
        trace,
        simulate(first, limits, costs, speed_up=speed_up),
        simulate(second, limits, costs, speed_up=speed_up),
        costs,
    )


def scale_trace(trace: Trace, profile: Profile) -> Trace:
    """Lengths times the profile's factor, cut to `max_seq_len`."""
    factor = profile.traffic.length_scale
    scaled = trace.scaled(factor) if factor != 1 else trace
    return scaled.clipped(profile.limits.max_seq_len)


def limits_of(profile: Profile) -> Limits:
    """The profile's limits in the words of the simulation."""
    limits = profile.limits
    if limits.max_num_tokens <= limits.draft_len:
        raise UsageError(
            f"`limits.max_num_tokens` is {limits.max_num_tokens}, a request with `limits.draft_len` "
            f"{limits.draft_len} takes {1 + limits.draft_len} tokens a step",
            "raise `limits.max_num_tokens` or lower `limits.draft_len`",
        )
    return Limits(
        max_batch_size=limits.max_batch_size,
        max_num_tokens=limits.max_num_tokens,
        max_seq_len=limits.max_seq_len,
        draft_len=limits.draft_len,
        replicas=profile.traffic.replicas,
    )


def read_costs(profile: Profile, path: Path | None, *, any_platform: bool = False) -> Costs:
    """Costs from a file, refused for another model or platform; without a file the prior of model and device."""
    if path is not None:
        costs = Costs.read(path)
        if not any_platform:
            _require_fitting(costs, profile, path)
        return costs
    limits = limits_of(profile)
    return prior_costs(
        model_shape(profile),
        device_shape(profile),
        max_size_decode=limits.max_decode_size,
        max_size_tokens=limits.max_num_tokens,
        model_name=profile.model.path,
    )


def _require_fitting(costs: Costs, profile: Profile, path: Path) -> None:
    """Measured costs hold for this machine, a prior for the profile's device, both for one model."""
    if costs.model != profile.model.path:
        raise UsageError(
            f"`{path}` holds costs of `{costs.model}`, the profile serves `{profile.model.path}`",
            "measure this model with `trtgate calibrate`, or take them all the same with `--any-platform`",
        )
    measured = costs.decode_replay.basis == "measured"
    here = read_platform().title if measured else profile.grid.device
    if costs.platform != here:
        raise UsageError(
            f"`{path}` holds costs of the platform `{costs.platform}`, this one is `{here}`",
            "measure here with `trtgate calibrate`, or take them all the same with `--any-platform`",
        )


def device_shape(profile: Profile) -> DeviceShape:
    """The device whose figures the prior uses."""
    device = DEVICES.get(profile.grid.device)
    if device is None:
        raise UsageError(f"`grid.device` is `{profile.grid.device}`", f"known devices: {', '.join(DEVICES)}")
    return device


def model_shape(profile: Profile) -> ModelShape:
    """The shape of the model: from its `config.json`, else by the profile's `model.shape` or built-in name."""
    config = Path(profile.model.path) / "config.json"
    if config.is_file():
        try:
            return model_shape_from_config(json.loads(read_text(config)))
        except json.JSONDecodeError as error:
            raise UsageError(f"`{config}` is not valid JSON", "check the model folder") from error
    name = profile.model.shape or profile.model.path
    if name not in MODELS:
        raise UsageError(
            f"no `config.json` in `{profile.model.path}` and no known shape `{name}`",
            f"set `model.shape` to one of {', '.join(MODELS)}",
        )
    return MODELS[name]


def kv_budget(profile: Profile, costs: Costs, trace: Trace) -> KvBudget:
    """What graphs and KV cache share: the device's memory without the weights, times the profile's fraction."""
    shape = model_shape(profile)
    free = (
        device_shape(profile).memory_bytes * profile.limits.tensor_parallel
        - shape.parameters * shape.dtype_bytes
    )
    return KvBudget(
        shared_bytes=max(0, int(free * profile.limits.kv_memory_fraction)),
        kv_bytes_per_token=costs.kv_bytes_per_token,
        tokens_per_sequence=float((trace.prompt_tokens + trace.output_tokens).mean()),
    )


def falling_behind(inputs: Inputs) -> str | None:
    """A sentence where the simulated replicas could not keep up with the trace, so that sizes are those of overload."""
    histogram, traffic = inputs.fit, inputs.profile.traffic
    span_s = inputs.trace.span_s * traffic.fit_fraction / traffic.speed_up
    if histogram.drain_s is None or histogram.drain_s <= BEHIND * span_s + LONG_ANSWER_S:
        return None
    return (
        f"warning: {traffic.replicas} replica(s) cannot keep up with this trace: the last answer ends "
        f"{histogram.drain_s:.0f} s after the last of {span_s:.0f} s of arrivals"
    )
