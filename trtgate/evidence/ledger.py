"""The ledger: every pair of runs that a canary made, in the order they ran; verdicts are computed from it alone."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from trtgate.errors import UsageError
from trtgate.profile import Gate, Name
from trtgate.record import Record, read_text, write_atomic

ArmName = Literal["baseline", "candidate"]


class Quantiles(Record):
    """Order statistics of one metric in one run, in the metric's unit, with the number of samples behind them."""

    samples: int
    p50: float
    p95: float
    p99: float
    maximum: float


class GraphCounts(Record):
    """What the runtime's own iteration rows say of one window.

    `predicted` is true where the runtime does not report replays, so that they follow from sizes and buckets.
    """

    decode_steps: int = 0
    decode_replayed: int = 0
    token_steps: int = 0
    token_replayed: int = 0
    real_tokens: int = 0  # of the replayed steps
    padded_tokens: int = 0  # what they were padded to
    reasons: dict[str, int] = Field(default_factory=dict)  # of steps that ran eager
    predicted: bool = False
    step_ms: dict[str, float] = Field(
        default_factory=dict
    )  # median by "decode:8", "tokens:64", "eager:decode"
    step_counts: dict[str, int] = Field(default_factory=dict)

    @property
    def decode_fallback_ratio(self) -> float | None:
        """Decode steps outside a captured graph over all decode steps; None without decode steps."""
        return 1 - self.decode_replayed / self.decode_steps if self.decode_steps else None

    @property
    def padding_ratio(self) -> float | None:
        """Padded over real tokens of replayed steps (1.0 is none); None without such steps."""
        return self.padded_tokens / self.real_tokens if self.real_tokens else None


class Measurement(Record):
    """One arm of a pair: one fresh start, warm-up apart, one window of load.

    `failure` names a crash, hang or out-of-memory of the runtime under test; `invalid` lists causes on our side.
    """

    arm: ArmName
    title: str  # what this arm is: "candidate", "release 3f2a...", "runtime default"
    started: str  # UTC, ISO 8601
    trace_sha256: str
    requests: int
    succeeded: int
    errors: dict[str, int] = Field(default_factory=dict)  # by kind; requests == succeeded + sum(errors)
    wrong_answers: int = 0
    checked_answers: int = 0
    output_tokens: int = 0
    work_sha256: str = ""  # of the (prompt, output) token counts of all requests, as the server counted them
    quantiles: dict[str, Quantiles] = Field(default_factory=dict)  # by metric name
    graphs: GraphCounts | None = None
    memory_bytes: int | None = None
    kv_tokens: int | None = None
    start_ms: dict[str, float] = Field(default_factory=dict)  # by phase
    send_lateness_p99_ms: float | None = None
    failure: str | None = None
    invalid: tuple[str, ...] = ()
    runtime_version: str | None = None  # as the server itself reports it
    notes: tuple[str, ...] = ()  # what was not seen, or happened aside; printed beside the verdict


class Pair(Record):
    """Two runs over the same segment of the trace, in alternating order."""

    index: int  # from 1
    order: Literal["baseline-first", "candidate-first"]
    seed: int
    segment_s: tuple[float, float]
    baseline: Measurement
    candidate: Measurement | None  # None: the baseline failed first, nothing was compared


class LedgerHead(Record):
    """What the pairs belong to; the policy is written down before the first run."""

    schema_version: Literal[1] = 1
    name: Name
    candidate_sha256: str  # of the plan
    baseline: str  # "release <id>", "runtime default", "eager"
    baseline_sha256: str  # of the plan
    gate: Gate
    looks: tuple[int, ...]
    max_send_lateness_ms: float
    length_scale: float = 1.0
    model_sha256: str = ""  # of the candidate's model files
    platform: str = ""
    attempt: int = 1
    attempt_reason: str = ""

    @property
    def policy_sha256(self) -> str:
        """Digest of the limits and looks that the verdict is bound to."""
        return Policy(gate=self.gate, looks=self.looks).digest


class Policy(Record):
    """The limits and the looks, as one thing to be digested."""

    gate: Gate
    looks: tuple[int, ...]


class Ledger(Record):
    """The head and all pairs; on disk one JSON line each."""

    head: LedgerHead
    pairs: tuple[Pair, ...] = ()

    def with_pair(self, pair: Pair) -> "Ledger":
        """The ledger with one more pair at its end."""
        return self.model_copy(update={"pairs": (*self.pairs, pair)})

    def write(self, path: Path) -> None:
        """Write all lines atomically; called after each pair, so that an interrupt loses at most one."""
        lines = [self.head.to_line(), *(pair.to_line() for pair in self.pairs)]
        write_atomic(path, "".join(lines).encode())

    @classmethod
    def read(cls, path: Path) -> "Ledger":
        """Read head and pairs; refuses an empty or damaged file."""
        lines = read_text(path).splitlines()
        if not lines:
            raise UsageError(f"`{path}` is empty", "run `trtgate canary` again")
        head = LedgerHead.parse(lines[0], f"`{path}`, line 1")
        pairs = [Pair.parse(line, f"`{path}`, line {number}") for number, line in enumerate(lines[1:], 2)]
        return cls(head=head, pairs=tuple(pairs))
