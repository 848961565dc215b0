"""A Llama-shaped decoder in plain torch, cut at attention so that the parts between can be captured.

On a CPU it computes in float64: sums of another order then differ by about 1e-15, which moves no greedy choice, so that
an answer depends on the prompt alone and not on batch, padding or chunks.
"""

import torch
from torch import Tensor
from torch.nn import functional

from .shapes import Shape
from .weights import QUERY_SCALE, Weights


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype for `auto` (float64 on a CPU, bfloat16 on a GPU) or the one named, one of `settings.DTYPES`."""
    if name == "auto":
        return torch.float64 if device.type == "cpu" else torch.bfloat16
    dtype: torch.dtype = getattr(torch, name)
    return dtype


class Decoder:
    """Weights and the computations between attentions."""

    def __init__(
        self, shape: Shape, dtype: torch.dtype, device: torch.device, seed: int, positions: int
    ) -> None:
        self.shape, self.dtype, self.device = shape, dtype, device
        self.q_width, self.kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        weights = Weights(shape, dtype, device, seed)
        self.embedding = weights.matrix("model.embed_tokens", shape.vocab, shape.hidden, scale=1.0)
        self._layers = [self._layer(weights, f"model.layers.{index}") for index in range(shape.layers)]
        self._last_norm = weights.norm("model.norm", shape.hidden)
        if not shape.tied:
            self._head = weights.matrix("lm_head", shape.vocab, shape.hidden)
        else:
            self._head = self.embedding if shape.folder else self.embedding * shape.hidden**-0.5
        self.rotations = self._rotations(positions)
        self._widens = self._can_widen()

    def segment(
        self, index: int, ids: Tensor, rotation: Tensor, residual: Tensor, attended: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Part `index` of layers + 1: embedding or the rest of the layer before, then queries, keys and values.

        `ids` [rows], `rotation` = `rotations[positions]`; part 0 reads no `residual` [rows, hidden].
        Returns residual, rotated queries and keys [rows, heads + kv_heads, head_dim], values [rows, kv_heads, ...];
        the last part returns the residual three times.
        """
        before = index - 1
        residual = (
            self._finish(before, residual, attended) if index else functional.embedding(ids, self.embedding)
        )
        if index == self.shape.layers:
            return residual, residual, residual
        norm, qkv_weight, *_ = self._layers[index]
        rows, width, head_dim = ids.shape[0], self.q_width + self.kv_width, self.shape.head_dim
        qkv = functional.linear(self._norm(residual, norm), qkv_weight)
        qk = qkv[:, :width].view(rows, -1, head_dim)
        cos, sin = rotation.unbind(1)
        qk = torch.addcmul(qk * cos, qk.roll(head_dim // 2, -1), sin)
        return residual, qk, qkv[:, width:].view(rows, -1, head_dim)

    def choose(self, residual: Tensor) -> Tensor:
        """Greedy token and its log-probability for each row, as float64 [2, rows]."""
        logits = self._logits(self._norm(residual, self._last_norm))
        best, token = logits.max(-1)
        return torch.stack((token.double(), (best - logits.logsumexp(-1)).double()))

    def _logits(self, hidden: Tensor) -> Tensor:
        """Logits in float32 or wider; half precision is widened inside the product, or its rounding would make ties."""
        if self._widens:
            return torch.mm(hidden, self._head.T, out_dtype=torch.float32)
        logits = functional.linear(hidden, self._head)
        return logits if logits.dtype == torch.float64 else logits.float()

    def _can_widen(self) -> bool:
        """Whether this torch multiplies halves into float32 on this device (2.8 and newer do, on a GPU)."""
        probe = torch.ones(16, 16, dtype=self.dtype, device=self.device)
        try:
            return torch.mm(probe, probe, out_dtype=torch.float32).dtype == torch.float32 != self.dtype
        except (RuntimeError, TypeError):
            return False

    def _finish(self, layer: int, residual: Tensor, attended: Tensor) -> Tensor:
        _, _, out, norm, gate_up, down = self._layers[layer]
        residual = torch.addmm(residual, attended, out.T)
        gate, up = functional.linear(self._norm(residual, norm), gate_up).chunk(2, -1)
        return torch.addmm(residual, functional.silu(gate) * up, down.T)

    def _norm(self, values: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(values, (self.shape.hidden,), weight, self.shape.eps)

    def _layer(self, weights: Weights, name: str) -> tuple[Tensor, ...]:
        hidden, ffn = self.shape.hidden, self.shape.ffn
        attention, mlp = f"{name}.self_attn", f"{name}.mlp"
        query = weights.matrix(f"{attention}.q_proj", self.q_width, hidden)
        query = query if self.shape.folder else query * QUERY_SCALE
        others = [weights.matrix(f"{attention}.{part}_proj", self.kv_width, hidden) for part in "kv"]
        return (
            weights.norm(f"{name}.input_layernorm", hidden),
            torch.cat((query, *others)),
            weights.matrix(f"{attention}.o_proj", hidden, self.q_width),
            weights.norm(f"{name}.post_attention_layernorm", hidden),
            torch.cat([weights.matrix(f"{mlp}.{part}_proj", ffn, hidden) for part in ("gate", "up")]),
            weights.matrix(f"{mlp}.down_proj", hidden, ffn),
        )

    def _rotations(self, positions: int) -> Tensor:
        """Cosines and signed sines [positions, 2, 1, head_dim], so that a rotation is `x cos + roll(x) sin`."""
        half = self.shape.head_dim // 2
        step = torch.arange(half, dtype=torch.float64) / half
        angles = torch.arange(positions, dtype=torch.float64)[:, None] * self.shape.rope_theta**-step
        cos, sin = angles.cos(), angles.sin()
        both = torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)), 1)
        return both[:, :, None].to(self.device, self.dtype)
