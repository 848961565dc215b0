"""What a step costs: measured curves, or a prior from the shapes of the model and the device.

The prior is a roofline: a step takes the longest of reading the weights, doing the arithmetic and launching
the kernels.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from trtgate.errors import UsageError
from trtgate.record import Record

Basis = Literal["prior", "measured"]

BANDWIDTH_SHARE = 0.8  # of the data sheet's bandwidth; what a plain weight-reading kernel reaches
FLOPS_SHARE = 0.58  # of the data sheet's dense arithmetic; 8B on an H200: 573 of 989 Tflop/s at 1,024 tokens
TOKENS_PER_BLOCK = 32


class CostCurve(Record):
    """Milliseconds a step by its size, through points.

    Between two points the curve is straight; below the first it is constant; above the last it goes on with
    the slope of the last segment, or flat where that one falls, so that it never goes below the last point.
    """

    sizes: tuple[int, ...] = Field(min_length=1)
    ms: tuple[float, ...]
    basis: Basis
    spread: tuple[float, ...] | None = None

    @model_validator(mode="after")
    def _is_a_curve(self) -> "CostCurve":
        if any(b <= a for a, b in zip((0, *self.sizes), self.sizes, strict=False)):
            raise ValueError("sizes of a curve are ascending, each once, 1 or more")
        if len(self.ms) != len(self.sizes) or len(self.spread or self.ms) != len(self.sizes):
            raise ValueError("a curve needs one time, and one spread or none, for each size")
        if min(self.ms) <= 0:
            raise ValueError("times of a curve are above zero")
        return self

    @cached_property
    def _points(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        sizes, ms = np.asarray(self.sizes, np.float64), np.asarray(self.ms, np.float64)
        slope = (ms[-1] - ms[-2]) / (sizes[-1] - sizes[-2]) if len(ms) > 1 else 0.0
        return sizes, ms, max(float(slope), 0.0)

    def at(self, sizes: ArrayLike) -> NDArray[np.float64]:
        """Milliseconds at each of `sizes` (any shape)."""
        known, ms, slope = self._points
        wanted = np.asarray(sizes, dtype=np.float64)
        beyond = slope * np.maximum(wanted - known[-1], 0.0)
        return np.asarray(np.interp(wanted, known, ms) + beyond, dtype=np.float64)


class GraphMemory(Record):
    """Bytes that graphs of one kind take: a shared pool, sized by the largest, and a little for each.

    `largest_bytes_per_size` is multiplied by the largest bucket; `each_bytes` is paid once a graph.
    """

    base_bytes: int = Field(default=0, ge=0)
    largest_bytes_per_size: float = Field(ge=0)
    each_bytes: int = Field(ge=0)

    def of(self, count: int, largest: int) -> int:
        """Bytes of `count` graphs whose largest bucket is `largest`; none for no graph."""
        if count == 0:
            return 0
        return self.base_bytes + round(self.largest_bytes_per_size * largest) + self.each_bytes * count


class Costs(Record):
    """All that the choice of buckets needs to know about a model on a platform."""

    schema_version: Literal[1] = 1
    model: str
    platform: str
    decode_replay: CostCurve
    decode_eager: CostCurve
    token_replay: CostCurve
    token_eager: CostCurve
    decode_graph_bytes: GraphMemory
    token_graph_bytes: GraphMemory
    decode_capture_s: float = Field(ge=0)  # a graph
    token_capture_s: float = Field(ge=0)  # a graph
    kv_bytes_per_token: int = Field(ge=1)


class ModelShape(Record):
    """The sizes of a decoder-only transformer with gated feed-forward layers."""

    layers: int = Field(ge=1)
    hidden: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    ff: int = Field(ge=1)
    vocab: int = Field(ge=1)
    dtype_bytes: int = Field(default=2, ge=1)

    @property
    def parameters(self) -> int:
        """Weights of the layers and of one vocabulary matrix: what a step reads and multiplies with."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.ff) + self.vocab * self.hidden

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token keeps over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype_bytes


class DeviceShape(Record):
    """What a device can do (data-sheet figures) and what the host pays for a step.

    The two shares say which part of the kernel launches a replay still pays: nearly none for a whole decode
    step on a GPU, some for token steps, whose attention stays outside the graphs; most on a CPU, where a
    bucket is a static padded buffer that runs the same operations and saves no more than the building of
    tensors. `step_us` is paid once a step, `request_us` once a request of a decode step (its attention and
    sampling). The defaults fit a 1.2B and an 8B model on an H200 within a fifth: decode replays of 2.4 ms (1
    request) and 8.7 ms (256), eager 8.4 ms; 512 and 1,024 tokens eager 17.1 and 28.6 ms.
    """

    name: str
    bandwidth_bytes_s: float = Field(gt=0)
    flops: float = Field(gt=0)
    launch_us: float = Field(gt=0)
    launches_per_layer: int = Field(ge=1)
    memory_bytes: int = Field(ge=1)
    step_us: float = Field(default=1700.0, ge=0)
    request_us: float = Field(default=20.0, ge=0)
    decode_launch_share: float = Field(default=0.02, ge=0, le=1)
    token_launch_share: float = Field(default=0.35, ge=0, le=1)


def _gpu(name: str, terabytes_s: float, teraflops: float, gib: int) -> DeviceShape:
    return DeviceShape(
        name=name,
        bandwidth_bytes_s=terabytes_s * 1e12,
        flops=teraflops * 1e12,
        launch_us=18.0,
        launches_per_layer=24,
        memory_bytes=gib << 30,
    )


DEVICES: Mapping[str, DeviceShape] = {
    "cpu": DeviceShape(
        name="cpu",
        bandwidth_bytes_s=20e9,
        flops=10e9,  # one thread in double precision, as the reference runtime computes
        launch_us=8.0,
        launches_per_layer=24,
        memory_bytes=4 << 30,
        step_us=800.0,
        request_us=0.0,
        decode_launch_share=0.7,
        token_launch_share=0.8,
    ),
    "a100": _gpu("a100", 2.0, 312, 80),
    "l40s": _gpu("l40s", 0.864, 362, 48),
    "h100": _gpu("h100", 3.35, 989, 80),
    "h200": _gpu("h200", 4.8, 989, 141),
    "b200": _gpu("b200", 8.0, 2250, 180),
}

MODELS: Mapping[str, ModelShape] = {
    "tiny": ModelShape(
        layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ff=128, vocab=512, dtype_bytes=4
    ),
    "1b": ModelShape(layers=16, hidden=2048, heads=32, kv_heads=8, head_dim=64, ff=8192, vocab=128256),
    "8b": ModelShape(layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ff=14336, vocab=128256),
    "70b": ModelShape(layers=80, hidden=8192, heads=64, kv_heads=8, head_dim=128, ff=28672, vocab=128256),
}


def prior_costs(
    model: ModelShape,
    device: DeviceShape,
    *,
    max_size_decode: int,
    max_size_tokens: int,
    model_name: str = "model",
) -> Costs:
    """Costs before anything was measured, every curve marked `prior`.

    With P parameters of s bytes, bandwidth B and arithmetic F (data sheet times the shares above), an n-token
    step computes for c(n) = max(P s / B, 2 P n / F), on decode steps plus n times `request_us`, and takes
    max(c(n), launches) + `step_us`, where a replay pays only its share of the launches. On a CPU, which does
    both itself, c(n) and launches add up. Attention over the context is left out of steps with context.
    """
    decode, tokens = _points(max_size_decode), _points(max_size_tokens)
    layers_per_token = model.dtype_bytes * (4 * model.hidden + 2 * model.ff)
    return Costs(
        model=model_name,
        platform=device.name,
        decode_replay=_prior_curve(model, device, decode, device.decode_launch_share, device.request_us),
        decode_eager=_prior_curve(model, device, decode, 1.0, device.request_us),
        token_replay=_prior_curve(model, device, tokens, device.token_launch_share, 0.0),
        token_eager=_prior_curve(model, device, tokens, 1.0, 0.0),
        decode_graph_bytes=GraphMemory(
            largest_bytes_per_size=layers_per_token + model.dtype_bytes * model.vocab,
            each_bytes=model.layers << 17,
        ),
        token_graph_bytes=GraphMemory(
            largest_bytes_per_size=layers_per_token + model.dtype_bytes * 2 * model.hidden * model.layers,
            each_bytes=model.layers << 18,
        ),
        decode_capture_s=0.02 * model.layers,
        token_capture_s=0.04 * model.layers,
        kv_bytes_per_token=model.kv_bytes_per_token,
    )


def _points(largest: int) -> NDArray[np.int64]:
    if largest < 1:
        raise UsageError(f"a largest size of `{largest}` has no cost", "give a limit of 1 or more")
    grown = np.unique(np.round(2.0 ** np.arange(0, np.log2(largest) + 0.125, 0.125)).astype(np.int64))
    return np.unique(np.append(grown[grown < largest], largest))


def _prior_curve(
    model: ModelShape, device: DeviceShape, sizes: NDArray[np.int64], launch_share: float, request_us: float
) -> CostCurve:
    reading_s = model.parameters * model.dtype_bytes / (device.bandwidth_bytes_s * BANDWIDTH_SHARE)
    arithmetic_s = 2.0 * model.parameters * sizes / (device.flops * FLOPS_SHARE)
    launching_s = model.layers * device.launches_per_layer * device.launch_us * 1e-6
    computing_s = np.maximum(reading_s, arithmetic_s) + request_us * 1e-6 * sizes
    if device.name == "cpu":
        step_s = computing_s + launching_s * launch_share
    else:
        step_s = np.maximum(computing_s, launching_s * launch_share)
    times = (step_s * 1e3 + device.step_us * 1e-3).round(6)
    return CostCurve(sizes=tuple(sizes.tolist()), ms=tuple(times.tolist()), basis="prior")


def model_shape_from_config(config: Mapping[str, Any]) -> ModelShape:
    """The shape in a Hugging Face `config.json` of the Llama family; refuses (`UsageError`) what it lacks."""
    text = config.get("text_config", config)
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
    missing = [name for name in names if not isinstance(text.get(name), int)]
    if missing:
        raise UsageError(
            f"`{missing[0]}` is missing in the model's configuration", "name a known model shape"
        )
    heads = text["num_attention_heads"]
    dtype = str(text.get("torch_dtype", text.get("dtype", "bfloat16")))
    return ModelShape(
        layers=text["num_hidden_layers"],
        hidden=text["hidden_size"],
        heads=heads,
        kv_heads=text.get("num_key_value_heads") or heads,
        head_dim=text.get("head_dim") or text["hidden_size"] // heads,
        ff=text["intermediate_size"],
        vocab=text["vocab_size"],
        dtype_bytes=4 if "32" in dtype else 1 if "8" in dtype else 2,
    )
