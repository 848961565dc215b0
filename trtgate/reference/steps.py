"""What one iteration computes: the batch, and the static buffers it is laid out in."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

IDS, POSITIONS, ROWS, STARTS, LENGTHS, ROW_STARTS, PICKS = range(7)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a prompt: its tokens, the first one's position, the request's extent, whether it is the last."""

    tokens: np.ndarray
    position: int
    start: int
    last: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """Generation requests as (token, position, extent), then context chunks."""

    singles: list[tuple[int, int, int]]
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """`tokens` with any context in it, otherwise `decode`."""
        return "tokens" if self.chunks else "decode"

    @property
    def size(self) -> int:
        """Rows to compute: one for each generation request and context token."""
        return len(self.singles) + sum(len(chunk.tokens) for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class Span:
    """Where attention looks: per request its extent and length, per chunk (row, rows, extent, length)."""

    single: int
    longest_rows: int
    longest: int
    starts: Tensor
    lengths: Tensor
    row_starts: Tensor
    chunks: list[tuple[int, int, int, int]] = field(default_factory=list)


class Inputs:
    """Static integer inputs [7, columns] on the device, written through one host array in one copy."""

    def __init__(self, columns: int, scratch: int, device: torch.device) -> None:
        self.scratch = scratch
        on_gpu = device.type == "cuda"
        self._pinned = torch.zeros(7, columns + 1, dtype=torch.int64, pin_memory=on_gpu)
        self.host = self._pinned.numpy()
        self.device = torch.zeros_like(self._pinned, device=device) if on_gpu else self._pinned
        self.longest = 1

    def fill(self, batch: Batch, rows: int) -> list[tuple[int, int, int, int]]:
        """Lay the batch out, padded to `rows`; returns its chunks as `Span` wants them."""
        host, count = self.host, len(batch.singles)
        if count:
            host[IDS, :count], host[POSITIONS, :count], host[STARTS, :count] = zip(
                *batch.singles, strict=True
            )
            host[ROWS, :count] = host[POSITIONS, :count] + host[STARTS, :count]
            host[LENGTHS, :count] = host[POSITIONS, :count] + 1
        chunks = self._fill_chunks(batch, count) if batch.chunks else []
        size = batch.size
        if size < rows:
            host[IDS : ROWS + 1, size:rows] = ((0,), (0,), (self.scratch,))
            if not chunks:
                host[STARTS : LENGTHS + 1, size:rows] = ((self.scratch,), (1,))
        sequences = count + len(chunks)
        self.longest = int(host[LENGTHS, :sequences].max())
        if self.device is not self._pinned:
            self.device.copy_(self._pinned, non_blocking=True)
        return chunks

    def _fill_chunks(self, batch: Batch, count: int) -> list[tuple[int, int, int, int]]:
        host, row, picks = self.host, count, count
        host[ROW_STARTS, : count + 1] = host[PICKS, : count + 1] = np.arange(count + 1)
        chunks = []
        for index, chunk in enumerate(batch.chunks, start=count):
            end, length = row + len(chunk.tokens), chunk.position + len(chunk.tokens)
            host[IDS, row:end] = chunk.tokens
            host[POSITIONS, row:end] = np.arange(chunk.position, length)
            host[ROWS, row:end] = np.arange(chunk.start + chunk.position, chunk.start + length)
            host[STARTS, index], host[LENGTHS, index], host[ROW_STARTS, index + 1] = chunk.start, length, end
            if chunk.last:
                host[PICKS, picks] = end - 1
                picks += 1
            chunks.append((row, end - row, chunk.start, length))
            row = end
        return chunks
