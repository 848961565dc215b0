"""The engine's own process: builds model, cache and graphs, then iterates; talks JSON lines over one socket.

A process apart, as in TensorRT-LLM, so that HTTP work for many streams never holds up an iteration.
"""

import gc
import json
import os
import socket
import threading
import time
from collections import deque
from typing import Any

import numpy as np
import torch

from .cache import Cache
from .engine import Answer, Engine, Request
from .graphs import CaptureMemoryError, Runner
from .model import Decoder, choose_dtype
from .report import Logger, iteration_line, metrics_row
from .settings import KV_BLOCK_TOKENS, Settings, SettingsError
from .shapes import read_shape

CPU_CACHE_BYTES = 1 << 30
GIB = 1 << 30


class StartError(Exception):
    """The executor cannot be created; the text is what TensorRT-LLM would print."""


class Line:
    """The socket to the HTTP process: commands come in on a thread; the process ends with it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._lock = sock, threading.Lock()
        self._commands: deque[dict[str, Any]] = deque()
        self._arrived = threading.Event()
        self.rows: deque[Any] = deque()
        self.tell_row: Any = None
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message as a line of JSON."""
        with self._lock:
            self._sock.sendall(json.dumps(message).encode() + b"\n")

    def take(self, *, wait: bool) -> list[dict[str, Any]]:
        """All commands that have arrived; with `wait`, at least one."""
        if wait and not self._commands:
            self._arrived.wait()
        self._arrived.clear()
        return [self._commands.popleft() for _ in range(len(self._commands))]

    def _listen(self) -> None:
        with self._sock.makefile("r", encoding="utf-8") as lines:
            for text in lines:
                command = json.loads(text)
                if "drain" in command:
                    rows = [self.rows.popleft() for _ in range(len(self.rows))]
                    self.send({"drained": command["drain"], "rows": [self.tell_row(row) for row in rows]})
                else:
                    self._commands.append(command)
                    self._arrived.set()
        os._exit(0)


def run_worker(settings: Settings, sock: socket.socket) -> int:
    """Build and serve until the other side closes; returns a status where the start or a fault ends it."""
    log, line = Logger(settings.log_level), Line(sock)
    torch.set_num_threads(settings.threads)
    log("I", f"Starting the reference runtime with model {settings.model}")
    try:
        if settings.faults.crash_at_start:
            raise StartError("RuntimeError: fault `crash-at-start`")
        while settings.faults.hang_at_start:
            time.sleep(1)
        engine, info = build(settings, log)
    except (StartError, SettingsError) as error:
        for text in str(error).splitlines():
            log("E", text)
        log("E", f"Executor worker initialization error: {str(error).splitlines()[0]}")
        log("E", "RuntimeError: Executor worker returned error")
        return 1
    line.rows = engine.rows
    blocks = info["kv_tokens"] // KV_BLOCK_TOKENS
    line.tell_row = lambda row: metrics_row(row, settings, blocks, _used_bytes())
    line.send({"ready": info})
    gc.collect()
    gc.freeze()
    return _iterate(engine, line, settings, log)


def build(settings: Settings, log: Logger) -> tuple[Engine, dict[str, Any]]:
    """An engine with everything captured, and what `/server_info` says of it."""
    shape = read_shape(settings.model)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    max_seq_len = settings.max_seq_len or min(shape.max_positions, 8192)
    if max_seq_len > shape.max_positions:
        raise SettingsError(f"`max_seq_len: {max_seq_len}` exceeds {shape.max_positions} positions")
    try:
        dtype = choose_dtype(settings.dtype, device)
        decoder = Decoder(shape, dtype, device, settings.seed, max_seq_len)
    except torch.OutOfMemoryError as error:
        raise _memory_error("Model", error) from error
    bytes_per_token = shape.kv_values_per_token * decoder.embedding.element_size()
    graph_bytes = 0
    try:
        tokens, graph_bytes = _kv_tokens(decoder, settings, max_seq_len, bytes_per_token, log)
        if tokens < KV_BLOCK_TOKENS:
            raise _memory_error("KV cache", None)
        runner = Runner(decoder, Cache(shape, tokens, dtype, device), settings, max_seq_len, log)
    except torch.OutOfMemoryError as error:
        raise _memory_error("KV cache", error) from error
    _prepare(runner)
    engine = Engine(runner, chunked=settings.chunked_prefill, eos=shape.eos, max_stats=settings.max_stats_len)
    return engine, _server_info(runner, max_seq_len, tokens, graph_bytes)


def _kv_tokens(
    decoder: Decoder, settings: Settings, max_seq_len: int, each: int, log: Logger
) -> tuple[int, int]:
    """Tokens that the cache may hold, and the bytes that the graphs took.

    On a GPU all is captured once beside a small cache to learn that; the cache then takes its fraction of the rest.
    """
    if decoder.device.type == "cpu":
        most = settings.kv_max_tokens or settings.max_batch_size * (max_seq_len + KV_BLOCK_TOKENS)
        return _whole_blocks(min(most, int(CPU_CACHE_BYTES * settings.kv_fraction) // each)), 0
    free = torch.cuda.mem_get_info()[0]
    trial = Cache(decoder.shape, settings.max_num_tokens, decoder.dtype, decoder.device)
    runner = Runner(decoder, trial, settings, max_seq_len, log)
    peak_bytes, graph_bytes = _prepare(runner)
    taken = free - torch.cuda.mem_get_info()[0] - settings.max_num_tokens * each + peak_bytes
    del runner, trial
    gc.collect()
    torch.cuda.empty_cache()
    left = torch.cuda.mem_get_info()[0] - taken
    tokens = int(left * settings.kv_fraction) // each
    tokens = min(tokens, settings.kv_max_tokens or tokens, 2**31 - KV_BLOCK_TOKENS - 1)
    peak = f"Peak memory during memory usage profiling (torch + non-torch): {taken / GIB:.2f} GiB"
    rest = f"available KV cache memory when calculating max tokens: {left / GIB:.2f} GiB"
    log("I", f"{peak}, {rest}, fraction is set {settings.kv_fraction}, kv size is {each}")
    return _whole_blocks(tokens), graph_bytes


def _whole_blocks(tokens: int) -> int:
    return tokens // KV_BLOCK_TOKENS * KV_BLOCK_TOKENS


def _prepare(runner: Runner) -> tuple[int, int]:
    """Warm up and capture; the bytes that the widest eager iteration needs, and those that the graphs hold."""
    try:
        begin = _used_bytes()
        runner.warm_up()
        peak_bytes = _used_bytes() - begin
        if runner.on_gpu:
            torch.cuda.empty_cache()
        before = _used_bytes()
        runner.capture()
    except (CaptureMemoryError, torch.OutOfMemoryError) as error:
        raise _memory_error("Additional executor resources", error) from error
    return peak_bytes, _used_bytes() - before


def _memory_error(component: str, error: Exception | None) -> StartError:
    free, total = torch.cuda.mem_get_info() if torch.cuda.is_available() else (0, 0)
    return StartError(
        f"Executor creation failed due to insufficient GPU memory.\n{error or ''}\n"
        f"The following component could not be created: {component}\nTotal GPU memory (GiB): {total / GIB:.2f}\n"
        f"Free GPU memory before component creation attempt (GiB): {free / GIB:.2f}"
    )


def _server_info(runner: Runner, max_seq_len: int, kv_tokens: int, graph_bytes: int) -> dict[str, Any]:
    settings, device = runner.settings, runner.device
    return {
        "runtime": "reference",
        "model": settings.model,
        "device": torch.cuda.get_device_name() if runner.on_gpu else "cpu",
        "torch": torch.__version__,
        "dtype": str(runner.decoder.dtype).removeprefix("torch."),
        "attention": "flash" if runner.cache.flash else "portable",
        "graphs": "cuda" if device.type == "cuda" else "static buffers",
        "vocab": runner.decoder.shape.vocab,
        "eos": runner.decoder.shape.eos,
        "max_batch_size": settings.max_batch_size,
        "max_num_tokens": settings.max_num_tokens,
        "max_seq_len": max_seq_len,
        "chunked_prefill": settings.chunked_prefill,
        "decode_padding": settings.decode_padding,
        "kv_tokens": kv_tokens,
        "kv_bytes_per_token": runner.decoder.shape.kv_values_per_token
        * runner.decoder.embedding.element_size(),
        "graph_memory_bytes": graph_bytes,
        **{
            kind: {
                "grid": list(captured.grid),
                "captured": sorted(captured.replays),
                "capture_ms": {str(size): round(ms, 3) for size, ms in sorted(captured.capture_ms.items())},
                "memory_bytes": {str(size): held for size, held in sorted(captured.memory_bytes.items())},
            }
            for kind, captured in runner.captured.items()
        },
    }


def _iterate(engine: Engine, line: Line, settings: Settings, log: Logger) -> int:
    faults, told = settings.faults, engine.latest
    pending: list[list[Any]] = []

    def flush() -> None:
        nonlocal told
        if pending:
            line.send({"tokens": pending.copy()})
            pending.clear()
        if settings.iter_log and engine.latest and engine.latest is not told:
            told = engine.latest
            log("I", iteration_line(told))

    while True:
        for command in line.take(wait=not engine.busy):
            _obey(engine, command)
        answers = engine.step(flush)
        pending.extend(_as_list(answer) for answer in answers)
        if not engine.runner.on_gpu or not engine.busy:
            flush()
        if not settings.iter_stats:
            engine.rows.clear()
        if faults.crash_after and engine.finished >= faults.crash_after:
            log("E", "Event loop terminated with error: fault `crash-after`")
            return 1
        while faults.hang_after and engine.finished >= faults.hang_after:
            time.sleep(1)


def _obey(engine: Engine, command: dict[str, Any]) -> None:
    if "cancel" in command:
        engine.cancel(command["cancel"])
        return
    prompt = np.array(command["prompt"], dtype=np.int64)
    limits = command["max_tokens"], command["min_tokens"], command["ignore_eos"]
    engine.add(Request(command["add"], prompt, *limits, arrived=time.perf_counter()))


def _as_list(answer: Answer) -> list[Any]:
    return [answer.id, answer.token, answer.logprob, answer.finish]


def _used_bytes() -> int:
    if not torch.cuda.is_available():
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free
