"""What warm-up found: for each bucket whether it was captured, hit, stable and right, and how long the start took."""

from typing import Literal

from trtgate.evidence.environment import Platform
from trtgate.record import Record

Kind = Literal["decode", "tokens"]


class BucketProof(Record):
    """The evidence for one bucket; it is valid when captured, hit, stable and right.

    `captured` is None where the runtime's log does not say; `hits` counts steps that replayed this bucket, which
    follows from sizes where `predicted`. `drift` is None below five timed visits, so that stability is unknown.
    """

    kind: Kind
    bucket: int
    captured: bool | None
    hits: int
    cold_ms: float | None  # the first visit, kept apart
    median_ms: float | None  # of the later ones
    drift: float | None  # median of the later half over that of the earlier half, minus one
    answers_checked: int
    answers_wrong: int
    valid: bool
    why: str  # empty where valid
    predicted: bool = False

    @property
    def title(self) -> str:
        """As printed: `decode 8`."""
        return f"{self.kind} {self.bucket}"


class Probe(Record):
    """One size above the largest bucket: what the runtime does there."""

    kind: Kind
    size: int
    steps: int
    replayed: int
    median_ms: float | None


class WarmupReport(Record):
    """The result of one proven start."""

    schema_version: Literal[1] = 1
    plan_sha256: str
    model_sha256: str = ""  # of the model's files before the start
    started: str
    runtime_version: str
    platform: Platform
    phases_ms: dict[str, float]
    memory_bytes: int | None
    kv_tokens: int | None
    sequences: int | None  # of the longest allowed length that fit into the KV cache
    requested_decode: tuple[int, ...] | None
    requested_tokens: tuple[int, ...] | None
    captured_decode: tuple[int, ...]
    captured_tokens: tuple[int, ...]
    buckets: tuple[BucketProof, ...]
    probes: tuple[Probe, ...]
    rounds: int
    answers_compared_with: str
    logprob_tolerance: float
    effective: dict[str, str | int | float | bool | None]  # limits as the server itself reports them
    findings: tuple[str, ...]
    passed: bool
    reason: str
