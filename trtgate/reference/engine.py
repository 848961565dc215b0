"""In-flight batching: which requests run in an iteration, and what came of it.

FIFO admission while a place and one extent of the KV cache are free for prompt and answer together; an iteration
holds all running generation requests, one token each, and context chunks up to `max_num_tokens` tokens in all.
"""

import random
import time
from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .graphs import Runner, Use
from .settings import KV_BLOCK_TOKENS
from .steps import Batch, Chunk


@dataclass(slots=True, eq=False)
class Request:
    """One prompt on its way: tokens computed, answer so far; `start` is its extent in the cache, in tokens."""

    id: int
    prompt: np.ndarray
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    arrived: float = 0.0
    start: int = -1
    computed: int = 0
    generated: int = 0
    newest: int = 0
    cancelled: bool = False

    @property
    def reserved(self) -> int:
        """Tokens of cache that it needs at most, in whole blocks."""
        return -(-(len(self.prompt) + self.max_tokens) // KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class Answer:
    """One new token of a request; `finish` is `stop`, `length` or None."""

    id: int
    token: int
    logprob: float
    finish: str | None


@dataclass(frozen=True, slots=True)
class Iteration:
    """What `/metrics` says about one iteration; times in ms."""

    number: int
    at: float
    host_ms: float
    device_ms: float
    previous_ms: float | None
    queue_ms: float
    contexts: int
    generations: int
    context_tokens: int
    active: int
    queued: int
    admitted: int
    completed: int
    free_blocks: int
    use: Use


class Extents:
    """Free ranges of the KV pool, first fit; neighbours are joined when they come back."""

    def __init__(self, tokens: int) -> None:
        self._free = [(0, tokens)] if tokens else []

    @property
    def free_tokens(self) -> int:
        """Tokens in all free ranges together."""
        return sum(size for _, size in self._free)

    def take(self, size: int) -> int:
        """The start of a range that is now taken, or -1 where none is long enough."""
        for index, (start, length) in enumerate(self._free):
            if length >= size:
                self._free[index : index + 1] = [(start + size, length - size)] if length > size else []
                return start
        return -1

    def give(self, start: int, size: int) -> None:
        """Return a range."""
        insort(self._free, (start, size))
        joined: list[tuple[int, int]] = []
        for at, length in self._free:
            if joined and sum(joined[-1]) == at:
                joined[-1] = (joined[-1][0], joined[-1][1] + length)
            else:
                joined.append((at, length))
        self._free = joined


@dataclass(slots=True)
class Counts:
    """What happened since the last iteration row."""

    admitted: int = 0
    completed: int = 0
    queue_ms: float = 0.0


class Engine:
    """Requests waiting and running, and one iteration at a time."""

    def __init__(self, runner: Runner, *, chunked: bool, eos: int, max_stats: int = 0) -> None:
        self.runner, self.chunked, self.eos = runner, chunked, eos
        self.most_tokens, self.most_requests = runner.settings.max_num_tokens, runner.most_requests
        self.vocab = runner.decoder.shape.vocab
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.extents = Extents(runner.cache.tokens)
        self.rows: deque[Iteration] = deque(maxlen=max_stats if max_stats >= 0 else None)
        self.number, self.finished = 0, 0
        self.latest: Iteration | None = None
        self._counts = Counts()
        self._previous_ms: float | None = None
        self._hit: set[tuple[str, int | None]] = set()
        self._random = random.Random(0)  # noqa: S311  - which steps are slow must repeat

    @property
    def busy(self) -> bool:
        """Whether any request is waiting or running."""
        return bool(self.running or self.waiting)

    def add(self, request: Request) -> None:
        """Queue a request; its place in the queue is its order of arrival."""
        self.waiting.append(request)

    def cancel(self, number: int) -> None:
        """Drop a request; a running one gives its place back before the next iteration."""
        for request in [*self.running, *self.waiting]:
            if request.id == number:
                request.cancelled = True

    def step(self, meanwhile: Callable[[], None] = lambda: None, *, eager: bool = False) -> list[Answer]:
        """Admit, run one iteration and return its new tokens; nothing where there is nothing to run.

        `meanwhile` is called when the iteration is launched, which on a GPU is before it is done.
        """
        begin = time.perf_counter()
        self._drop_cancelled()
        self._admit(begin)
        batch, answering = self._schedule()
        if not batch.size:
            return []
        use = self.runner.launch(batch, eager=eager)
        meanwhile()
        tokens, logprobs, device_ms = self.runner.wait(len(answering))
        faults = self.runner.settings.faults
        if use.replayed and faults.wrong(use.kind, use.bucket or 0, use.size):
            tokens = [(token + 1) % self.vocab for token in tokens]
        self._sleep(use, time.perf_counter() - begin)
        answers = [self._answer(*each) for each in zip(answering, tokens, logprobs, strict=True)]
        self._note(batch, use, 1000 * (time.perf_counter() - begin), device_ms)
        return answers

    def _drop_cancelled(self) -> None:
        if any(request.cancelled for request in [*self.running, *self.waiting]):
            for request in [request for request in self.running if request.cancelled]:
                self._leave(request)
            self.waiting = deque(request for request in self.waiting if not request.cancelled)

    def _admit(self, now: float) -> None:
        while self.waiting and len(self.running) < self.most_requests:
            start = self.extents.take(self.waiting[0].reserved)
            if start < 0:
                return
            request = self.waiting.popleft()
            request.start = start
            self.running.append(request)
            self._counts.admitted += 1
            self._counts.queue_ms = max(self._counts.queue_ms, 1000 * (now - request.arrived))

    def _schedule(self) -> tuple[Batch, list[Request]]:
        """The next batch, and who gets a token from each of its answers."""
        generating = [request for request in self.running if request.computed == len(request.prompt)]
        singles = [(r.newest, len(r.prompt) + r.generated - 1, r.start) for r in generating]
        budget, chunks = self.most_tokens - len(singles), []
        for request in self.running if len(generating) < len(self.running) else ():
            left = len(request.prompt) - request.computed
            if not left:
                continue
            count = min(left, budget)
            if not count or (count < left and not self.chunked):
                break
            end = request.computed + count
            chunks.append(
                Chunk(request.prompt[request.computed : end], request.computed, request.start, count == left)
            )
            request.computed, budget = end, budget - count
            if count == left:
                generating.append(request)
        return Batch(singles, chunks), generating

    def _answer(self, request: Request, token: int, logprob: float) -> Answer:
        request.newest = token
        request.generated += 1
        finish = None
        if request.generated >= request.max_tokens:
            finish = "length"
        elif token == self.eos and not request.ignore_eos and request.generated >= request.min_tokens:
            finish = "stop"
        if finish:
            self._leave(request)
            self._counts.completed += 1
            self.finished += 1
        return Answer(request.id, token, logprob, finish)

    def _leave(self, request: Request) -> None:
        self.running.remove(request)
        self.extents.give(request.start, request.reserved)

    def _sleep(self, use: Use, took_s: float) -> None:
        """Be as slow as the faults ask for."""
        faults = self.runner.settings.faults
        pause = took_s * faults.slow
        if faults.tail_rate and self._random.random() < faults.tail_rate:
            pause += faults.tail_ms / 1000
        if faults.first_hit_ms and use.replayed and (use.kind, use.bucket) not in self._hit:
            self._hit.add((use.kind, use.bucket))
            pause += faults.first_hit_ms / 1000
        if pause:
            time.sleep(pause)

    def _note(self, batch: Batch, use: Use, host_ms: float, device_ms: float) -> None:
        counts, single = self._counts, len(batch.singles)
        self.number += 1
        self.latest = Iteration(
            self.number,
            time.time(),
            host_ms,
            device_ms or host_ms,
            self._previous_ms,
            counts.queue_ms,
            contexts=len(batch.chunks),
            generations=single,
            context_tokens=use.size - single,
            active=len(self.running) + counts.completed,
            queued=len(self.waiting),
            admitted=counts.admitted,
            completed=counts.completed,
            free_blocks=self.extents.free_tokens // KV_BLOCK_TOKENS,
            use=use,
        )
        self.rows.append(self.latest)
        self._previous_ms, self._counts = self.latest.device_ms, Counts()
