"""Runs iterations: replays of captured buckets where one holds the batch, eager otherwise.

On a GPU a bucket is a `torch.cuda.CUDAGraph` (for tokens one for each part between attentions), all in one memory pool;
on a CPU it is the same computation over the same padded static buffers.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from .cache import Cache
from .grids import next_bucket
from .model import Decoder
from .settings import Settings
from .steps import IDS, LENGTHS, PICKS, POSITIONS, ROW_STARTS, ROWS, STARTS, Batch, Chunk, Inputs, Span

Log = Callable[[str, str], None]


class CaptureMemoryError(Exception):
    """The device ran out of memory while a bucket was being captured."""


@dataclass(frozen=True, slots=True)
class Use:
    """Which bucket an iteration went to (None: eager and unpadded), and why it was not a replay."""

    kind: str
    bucket: int | None
    size: int
    replayed: bool
    reason: str | None


@dataclass(slots=True)
class Captured:
    """The buckets of one kind that can be replayed, with what each cost."""

    grid: tuple[int, ...]
    replays: dict[int, list[Callable[[], None]]] = field(default_factory=dict)
    capture_ms: dict[int, float] = field(default_factory=dict)
    memory_bytes: dict[int, int] = field(default_factory=dict)


class Runner:
    """One model, one cache, the static buffers and the captured buckets."""

    def __init__(
        self, decoder: Decoder, cache: Cache, settings: Settings, max_seq_len: int, log: Log
    ) -> None:
        self.decoder, self.cache, self.settings, self.log = decoder, cache, settings, log
        self.max_seq_len, self.device = max_seq_len, decoder.device
        self.on_gpu = self.device.type == "cuda"
        self.captured = {"decode": Captured(settings.decode_grid), "tokens": Captured(settings.token_grid)}
        self.most_requests = min(settings.max_batch_size, settings.max_num_tokens)
        self._inputs = {
            "decode": Inputs(self.most_requests, cache.tokens, self.device),
            "tokens": Inputs(settings.max_num_tokens, cache.tokens, self.device),
        }
        self._chosen = self._buffer(2, self.most_requests, dtype=torch.float64)
        self._chosen_host = torch.zeros(2, self.most_requests, dtype=torch.float64, pin_memory=self.on_gpu)
        self._one_row_each = torch.arange(self.most_requests + 1, dtype=torch.int32, device=self.device)
        shape, widest = decoder.shape, max(settings.token_grid, default=0)
        self._residual = self._buffer(widest, shape.hidden)
        self._qk = self._buffer(widest, shape.heads + shape.kv_heads, shape.head_dim)
        self._values = self._buffer(widest, shape.kv_heads, shape.head_dim)
        self._attended = self._buffer(widest, decoder.q_width)
        self._rotation = self._buffer(widest, *decoder.rotations.shape[1:])
        if self.on_gpu:
            self._pool = torch.cuda.graph_pool_handle()
            self._side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            self._begin, self._end = _timer(), _timer()

    def capture(self) -> None:
        """Capture both grids, largest first; refuses (`CaptureMemoryError`, naming the bucket) when memory ends."""
        decode, tokens = self.captured["decode"], self.captured["tokens"]
        if decode.grid:
            self.log("I", f"Creating CUDA graph instances for {len(decode.grid)} batch sizes.")
        for bucket in reversed(decode.grid):
            self._capture_one("decode", bucket)
        if tokens.grid:
            self.log("I", "Running piecewise CUDA graph warmup...")
        for bucket in reversed(tokens.grid):
            if bucket <= min(self.settings.max_batch_size * (self.max_seq_len - 1), self.cache.tokens):
                self._capture_one("tokens", bucket)
        for bucket in reversed(tokens.grid if self.on_gpu else ()):
            if bucket in tokens.replays:
                self.log("I", f"Run piecewise CUDA graph warmup for num tokens={bucket} with most requests")
                for replay in tokens.replays[bucket]:
                    replay()
        if self.on_gpu:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()  # what warming up on the side stream held

    def warm_up(self) -> None:
        """Run eager iterations over an idle cache: on a GPU the widest, so that its memory is seen."""
        longest = min(self.max_seq_len, self.cache.tokens)
        rows = min(self.settings.max_num_tokens if self.on_gpu else 64, longest * self.most_requests)
        parts = [min(longest, rows - at) for at in range(0, rows, longest)]
        context = Batch([], [Chunk(np.zeros(part, np.int64), 0, 0, last=True) for part in parts])
        for batch in (context, Batch([(0, 0, 0)] * (self.most_requests if self.on_gpu else 1))):
            single = len(batch.singles)
            self.log("I", f"Run warmup with {batch.size} tokens, include {single} generation tokens")
            self.launch(batch, eager=True)
            self.wait(single)

    def use(self, kind: str, size: int) -> Use:
        """Where an iteration of `size` rows goes, by TensorRT-LLM's rules."""
        captured = self.captured[kind]
        bucket = next_bucket(captured.grid, size)
        if not captured.grid:
            return Use(kind, None, size, replayed=False, reason="graphs off")
        if bucket is None:
            return Use(kind, None, size, replayed=False, reason="above largest bucket")
        if kind == "decode" and bucket != size and not self.settings.decode_padding:
            return Use(kind, None, size, replayed=False, reason="padding off")
        replayed = bucket in captured.replays
        return Use(kind, bucket, size, replayed, None if replayed else "not captured")

    @torch.inference_mode()
    def launch(self, batch: Batch, *, eager: bool = False) -> Use:
        """Start one iteration; on a GPU it returns before the work is done. `eager` leaves the buckets aside."""
        kind, size = batch.kind, batch.size
        use = Use(kind, None, size, replayed=False, reason="asked") if eager else self.use(kind, size)
        inputs = self._inputs[kind]
        if self.on_gpu:
            self._begin.record()
        chunks = inputs.fill(batch, use.bucket or size)
        if kind == "tokens":
            picks = len(batch.singles) + sum(chunk.last for chunk in batch.chunks)
            self._run_tokens(use, chunks, len(batch.singles), picks)
        elif use.replayed and use.bucket:
            self.captured[kind].replays[use.bucket][0]()
        else:
            self._decode(use.bucket or size, inputs.longest)
        if self.on_gpu:
            self._chosen_host.copy_(self._chosen, non_blocking=True)
            self._end.record()
        return use

    def wait(self, count: int) -> tuple[list[int], list[float], float]:
        """Tokens and log-probabilities of the first `count` answers, and the device's time in ms (0 on a CPU)."""
        device_ms = 0.0
        if self.on_gpu:
            self._end.synchronize()
            device_ms = self._begin.elapsed_time(self._end)
        chosen = (self._chosen_host if self.on_gpu else self._chosen)[:, :count]
        return chosen[0].long().tolist(), chosen[1].tolist(), device_ms

    def _decode(self, rows: int, longest: int) -> None:
        inputs = self._inputs["decode"].device[:, :rows]
        starts, lengths = inputs[STARTS], inputs[LENGTHS]
        if self.cache.flash:
            starts, lengths = self._inputs["decode"].device[STARTS, : rows + 1].int(), lengths.int()
        span = Span(rows, 1, longest, starts, lengths, self._one_row_each[: rows + 1])
        residual = self._through(inputs[IDS], inputs[POSITIONS], inputs[ROWS], span)
        self._chosen[:, :rows] = self.decoder.choose(residual)

    def _through(self, ids: Tensor, positions: Tensor, at: Tensor, span: Span, real: int = 0) -> Tensor:
        """All parts, eager; attention only for the first `real` rows, the rest (padding) being zeros."""
        rows = ids.shape[0]
        real = real or rows
        residual = attended = ids
        rotation = self.decoder.rotations[positions]
        for part in range(self.decoder.shape.layers + 1):
            residual, qk, values = self.decoder.segment(part, ids, rotation, residual, attended)
            if part < self.decoder.shape.layers:
                self.cache.write(part, at[:real], qk[:real], values[:real])
                attended = self.cache.attend(part, qk[:real], span)
                if real < rows:
                    attended = torch.cat((attended, attended.new_zeros(rows - real, attended.shape[1])))
        return residual

    def _run_tokens(self, use: Use, chunks: list[tuple[int, int, int, int]], single: int, picks: int) -> None:
        inputs, size = self._inputs["tokens"], use.size
        sequences = single + len(chunks)
        starts, lengths, row_starts = (inputs.device[row] for row in (STARTS, LENGTHS, ROW_STARTS))
        if self.cache.flash:
            starts, lengths, row_starts = (
                table[:count].int()
                for table, count in (
                    (starts, sequences + 1),
                    (lengths, sequences),
                    (row_starts, sequences + 1),
                )
            )
        longest_rows = max(rows for _, rows, _, _ in chunks)
        span = Span(single, longest_rows, inputs.longest, starts, lengths, row_starts, chunks)
        if use.replayed and use.bucket:
            residual = self._replay_parts(use, span)
        else:
            rows = use.bucket or size
            ids, positions, at = (inputs.device[row, :rows] for row in (IDS, POSITIONS, ROWS))
            residual = self._through(ids, positions, at, span, real=size)
        if picks:
            self._chosen[:, :picks] = self.decoder.choose(residual[inputs.device[PICKS, :picks]])

    def _replay_parts(self, use: Use, span: Span) -> Tensor:
        size, at = use.size, self._inputs["tokens"].device[ROWS, : use.size]
        replays = self.captured["tokens"].replays[use.bucket or 0]
        for part, replay in enumerate(replays):
            replay()
            if part + 1 < len(replays):
                self.cache.write(part, at, self._qk[:size], self._values[:size])
                self._attended[:size] = self.cache.attend(part, self._qk[:size], span)
        return self._residual

    def _part(self, part: int, rows: int) -> None:
        """One part between attentions, from static buffers into static buffers."""
        inputs = self._inputs["tokens"].device
        if not part:
            self._rotation[:rows] = self.decoder.rotations[inputs[POSITIONS, :rows]]
        residual, qk, values = self.decoder.segment(
            part, inputs[IDS, :rows], self._rotation[:rows], self._residual[:rows], self._attended[:rows]
        )
        self._residual[:rows] = residual
        if part < self.decoder.shape.layers:
            self._qk[:rows], self._values[:rows] = qk, values

    @torch.inference_mode()
    def _capture_one(self, kind: str, bucket: int) -> None:
        name = "generation-only" if kind == "decode" else "piecewise"
        what = f"num tokens={bucket}"
        if kind == "decode":
            what = f"batch size={bucket}, draft_len=0, max_seq_len={self.max_seq_len}"
        if bucket in self.settings.faults.skip_capture:
            return
        self.log("I", f"Run {name} CUDA graph warmup for {what}")
        begin, before = time.perf_counter(), self._free_bytes()
        captured = self.captured[kind]
        try:
            if bucket in self.settings.faults.oom_at_capture:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            if kind == "decode":
                self._inputs[kind].fill(Batch([(0, 0, self._inputs[kind].scratch)]), bucket)
                captured.replays[bucket] = [self._record(lambda: self._decode(bucket, self._window()))]
            else:
                parts = range(self.decoder.shape.layers + 1)
                captured.replays[bucket] = [self._record(partial(self._part, part, bucket)) for part in parts]
        except RuntimeError as error:  # the allocator's and the driver's lack of memory differ in type
            if "out of memory" not in str(error):
                raise
            raise CaptureMemoryError(f"{error} (while capturing the CUDA graph for {what})") from error
        captured.capture_ms[bucket] = 1000 * (time.perf_counter() - begin)
        captured.memory_bytes[bucket] = before - self._free_bytes()

    def _record(self, function: Callable[[], None]) -> Callable[[], None]:
        """The function run once on a CPU; on a GPU warmed and captured on the side stream: its replay."""
        if not self.on_gpu:
            function()
            return function
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            for _ in range(2):
                function()
            self._side.synchronize()
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(pool=self._pool)
            try:
                function()
            except torch.OutOfMemoryError:
                # nothing may be asked of the device before the capture ends, well or not
                with contextlib.suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(self._side)
        return graph.replay

    def _window(self) -> int:
        """Keys that a decode step looks at: a captured one must be ready for the longest request."""
        return self.max_seq_len if self.on_gpu else self._inputs["decode"].longest

    def _buffer(self, *size: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.zeros(size, dtype=dtype or self.decoder.dtype, device=self.device)

    def _free_bytes(self) -> int:
        return torch.cuda.mem_get_info()[0] if self.on_gpu else 0


def _timer() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
