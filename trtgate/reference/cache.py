"""The KV cache: one pool of tokens, one contiguous extent a request, and attention over it."""

import torch
from torch import Tensor
from torch.nn import functional

from .shapes import Shape
from .steps import Span


def flash_attention(queries: Tensor, keys: Tensor, values: Tensor, span: Span) -> Tensor:
    """Causal attention of ragged requests [rows, heads, head_dim] over one pool, with int32 tables, on a GPU.

    With `seqused_k` the kernel takes cumulative key lengths only as the place where each request begins.
    """
    most = span.longest_rows, span.longest
    result: Tensor = torch.ops.aten._flash_attention_forward(
        queries, keys, values, span.row_starts, span.starts, *most, 0.0, True, False, seqused_k=span.lengths
    )[0]
    return result


class Cache:
    """Keys and values of `tokens` tokens, and a scratch row behind them that padding may write to."""

    def __init__(self, shape: Shape, tokens: int, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.tokens, self.device = shape, tokens, device
        size = (tokens + 1, shape.kv_heads, shape.head_dim)
        self.keys = [torch.zeros(size, dtype=dtype, device=device) for _ in range(shape.layers)]
        self.values = [torch.zeros(size, dtype=dtype, device=device) for _ in range(shape.layers)]
        self.flash = (
            device.type == "cuda" and dtype in {torch.bfloat16, torch.float16} and self._flash_agrees()
        )

    def write(self, layer: int, at: Tensor, qk: Tensor, values: Tensor) -> None:
        """Put the keys behind the queries in `qk`, and the values, at rows `at` of the pool."""
        self.keys[layer].index_copy_(0, at, qk[:, self.shape.heads :])
        self.values[layer].index_copy_(0, at, values)

    def attend(self, layer: int, qk: Tensor, span: Span) -> Tensor:
        """Causal attention of each query row to its own request; returns [rows, heads * head_dim]."""
        queries = qk[:, : self.shape.heads]
        if self.flash:
            return self._attend_flash(layer, queries, span).flatten(1)
        attend_single = self._attend_each if self.device.type == "cpu" else self._attend_window
        parts = [attend_single(layer, queries[: span.single], span)] if span.single else []
        parts += [
            self._attend_chunk(layer, queries[at : at + rows], start, length)
            for at, rows, start, length in span.chunks
        ]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).flatten(1)

    def _attend_flash(self, layer: int, queries: Tensor, span: Span) -> Tensor:
        return flash_attention(queries, self.keys[layer], self.values[layer], span)

    def _attend_window(self, layer: int, queries: Tensor, span: Span) -> Tensor:
        """One query row each, all requests at once over a window of the longest."""
        window = torch.arange(span.longest, device=self.device)
        starts, lengths = span.starts[: span.single, None], span.lengths[: span.single, None]
        rows = (starts + window).clamp_(max=self.tokens)
        keys, values = self.keys[layer][rows].transpose(1, 2), self.values[layer][rows].transpose(1, 2)
        mask = (window < lengths)[:, None, None]
        # the query heads that share a key head stand as rows of one query, so that keys need not be repeated
        grouped = queries.reshape(span.single, self.shape.kv_heads, -1, self.shape.head_dim)
        return functional.scaled_dot_product_attention(grouped, keys, values, mask).reshape(queries.shape)

    def _attend_each(self, layer: int, queries: Tensor, span: Span) -> Tensor:
        """The same, request by request: a CPU takes longer to copy a window than to make the calls."""
        keys, values = self.keys[layer].transpose(0, 1), self.values[layer].transpose(0, 1)
        grouped = queries.reshape(span.single, self.shape.kv_heads, -1, self.shape.head_dim)
        grouped, result = grouped * self.shape.head_dim**-0.5, torch.empty_like(grouped)
        extents = zip(span.starts[: span.single].tolist(), span.lengths[: span.single].tolist(), strict=True)
        for row, (start, length) in enumerate(extents):
            where = slice(start, start + length)
            share = torch.bmm(grouped[row], keys[:, where].transpose(1, 2)).softmax(-1)
            torch.bmm(share, values[:, where], out=result[row])
        return result.view(queries.shape)

    def _attend_chunk(self, layer: int, queries: Tensor, start: int, length: int) -> Tensor:
        """Several query rows of one request, the last of them being its newest token."""
        keys = self.keys[layer][start : start + length].transpose(0, 1)
        values = self.values[layer][start : start + length].transpose(0, 1)
        rows = queries.shape[0]
        mask = torch.ones(rows, length, dtype=torch.bool, device=self.device).tril_(length - rows)
        return functional.scaled_dot_product_attention(
            queries.transpose(0, 1), keys, values, mask, enable_gqa=True
        ).transpose(0, 1)

    def _flash_agrees(self) -> bool:
        """Whether the flash kernel is there and does what `_attend_window` does on two requests at the pool's start."""
        for pool in (self.keys[0], self.values[0]):
            pool[:32].normal_()
        queries = torch.randn(
            2, self.shape.heads, self.shape.head_dim, dtype=self.keys[0].dtype, device=self.device
        )
        tables = ([0, 16, 0], [9, 13], [0, 1, 2])
        starts, lengths, rows = (
            torch.tensor(table, dtype=torch.int32, device=self.device) for table in tables
        )
        span = Span(2, 1, 16, starts, lengths, rows)
        try:
            flash = self._attend_flash(0, queries, span)
        except (RuntimeError, TypeError):
            return False
        return torch.allclose(flash, self._attend_window(0, queries, span), atol=2e-2, rtol=2e-2)
