"""What a load is made of: requests to send, outcomes, and the error bar of the instrument that timed them."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Dialect = Literal["vllm", "tensorrt-llm", "openai"]
TokensSource = Literal["usage", "token_ids", "chunks"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to send.

    `at_s` is the time of sending, from the start of the run; with `after` (the place of an earlier ask in
    the list) it is the pause after that one ended, which gives closed loops and conversations.
    `prompt` holds token ids or text, `tag` any name of a group, `logprobs` how many to ask for.
    """

    at_s: float
    prompt: Sequence[int] | str
    max_tokens: int
    tag: str = ""
    logprobs: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """An OpenAI-shaped endpoint; `path` chooses completions or chat, `dialect` the fields that it accepts.

    `verify` is whether to check a TLS certificate, or the path of a bundle of authorities to trust.
    """

    url: str
    model: str
    path: str = "/v1/completions"
    bearer: str | None = field(default=None, repr=False)
    verify: bool | str = True
    dialect: Dialect = "vllm"

    @property
    def chat(self) -> bool:
        """Whether the path is that of chat completions."""
        return self.path.endswith("/chat/completions")


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The outcome of one ask: times in seconds from the start of the run, `nan` for what did not happen.

    `chunk_s` holds the time of every chunk with content, `chunk_tokens` the tokens in each (one each where
    not `chunk_tokens_known`); `error` is `None` for a complete answer, `detail` what the server said of it.
    """

    index: int
    tag: str
    scheduled_s: float
    sent_s: float
    first_s: float
    last_s: float
    end_s: float
    connect_s: float
    queued: bool
    chunk_s: "array[float]"
    chunk_tokens: "array[int]"
    chunk_tokens_known: bool
    tokens: int
    max_tokens: int
    prompt_tokens: int | None
    tokens_source: TokensSource
    error: str | None
    detail: str
    status: int | None
    finish_reason: str | None
    packed_ids: "array[int] | None" = None
    logprobs: tuple[float, ...] | None = None

    @property
    def ok(self) -> bool:
        """Whether the answer is complete."""
        return self.error is None

    @property
    def token_ids(self) -> tuple[int, ...] | None:
        """The ids of the tokens generated, where the server gives them."""
        return None if self.packed_ids is None else tuple(self.packed_ids)


@dataclass(frozen=True, slots=True)
class Instrument:
    """The error bar of a run: how late the client sent, how long data waited for it, how busy it was.

    Lateness is sending minus schedule, lag is reading minus the kernel's time of arrival (`lag_source` is
    `none` where the kernel gives none). `delivered` is the part of the asked rate that was sent. `merged` is
    the part of chunks that have the time of the one before, since one read brought both; `blind` the part
    merged in reads more than 1 ms late, which a faster client might have told apart. `cpu` is the share of
    one core that was used, `starved` the share of time for which the client had to wait for a core.
    """

    late_p50_ms: float
    late_p99_ms: float
    late_max_ms: float
    lag_p50_ms: float
    lag_p99_ms: float
    lag_source: Literal["kernel", "none"]
    cpu: float
    starved: float
    delivered: float
    merged: float
    blind: float
    queued: int
    clock_step_ms: float
    timer_ms: float
    reads: int


@dataclass(frozen=True, slots=True, eq=False)
class LoadResult:
    """All outcomes of one run, in the order of its asks; the instrument's error bar; the lag of each read."""

    answers: tuple[Answer, ...]
    instrument: Instrument
    started_unix_s: float
    duration_s: float
    lag_s: "array[float]" = field(default_factory=lambda: array("f"))


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands; medians are over answers ended since the last report, `nan` of none."""

    elapsed_s: float
    asked: int
    sent: int
    running: int
    complete: int
    failed: int
    tokens: int
    ttft_ms: float
    tpot_ms: float
