"""Which pairs count: causes of invalidity only, never how fast an arm was (`release-gate.md` 2.6)."""

import math
from dataclasses import dataclass

from trtgate.evidence.ledger import Ledger, LedgerHead, Measurement, Pair, Quantiles
from trtgate.profile import MetricLimit
from trtgate.verdicts.stats import samples_needed

MAX_REPLACED = 3


@dataclass(frozen=True, slots=True)
class InvalidPair:
    """A pair that is left out, and why."""

    index: int
    causes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """The valid pairs in order, the others, and whether more were replaced than allowed.

    `valid` ends where the fourth invalid pair stands: what was measured beyond it decides nothing.
    """

    valid: tuple[Pair, ...]
    invalid: tuple[InvalidPair, ...]
    exhausted: bool


def split_pairs(ledger: Ledger) -> Split:
    """Tell valid pairs from invalid ones; at most three may be replaced."""
    valid: list[Pair] = []
    invalid: list[InvalidPair] = []
    seen: set[int] = set()
    for pair in ledger.pairs:
        causes = pair_causes(pair, ledger.head)
        if valid and not causes:
            causes = [*_lost_samples(pair, valid[0], ledger.head), *_other_versions(pair, valid[0])]
        if pair.index in seen:
            causes.append(f"pair {pair.index} is in the ledger twice")
        seen.add(pair.index)
        if causes:
            invalid.append(InvalidPair(pair.index, tuple(causes)))
        elif len(invalid) <= MAX_REPLACED:
            valid.append(pair)
    return Split(tuple(valid), tuple(invalid), len(invalid) > MAX_REPLACED)


def pair_causes(pair: Pair, head: LedgerHead) -> list[str]:
    """Why a pair does not count; empty for a valid one."""
    causes = run_causes(pair.baseline, head)
    if pair.baseline.failure:
        causes.insert(0, f"the baseline failed: {pair.baseline.failure}")
    if pair.candidate is None:
        return [*causes, "the candidate was not measured"]
    causes += run_causes(pair.candidate, head)
    if pair.candidate.failure:
        causes.append(f"the candidate failed: {pair.candidate.failure}")
    if causes:
        return causes
    return [
        *_unequal_work(pair.baseline, pair.candidate),
        *_missing_metrics(pair.baseline, pair.candidate, head),
        *_missing_evidence(pair.baseline, pair.candidate, head),
    ]


def run_causes(run: Measurement, head: LedgerHead) -> list[str]:
    """Causes on our side in one run: its own flags, no requests, odd counts, a late load generator."""
    causes = [f"{run.arm}: {cause}" for cause in run.invalid]
    if run.failure:
        return causes
    if run.requests <= 0:
        causes.append(f"{run.arm}: no requests were sent")
    if run.requests != run.succeeded + sum(run.errors.values()) or min(run.succeeded, run.requests) < 0:
        causes.append(f"{run.arm}: {run.requests} requests are not {run.succeeded} answers and the errors")
    lateness = run.send_lateness_p99_ms
    if lateness is None or not math.isfinite(lateness):
        causes.append(f"{run.arm}: the lateness of the load generator was not recorded")
    elif lateness > head.max_send_lateness_ms:
        allowed = head.max_send_lateness_ms
        causes.append(f"{run.arm}: the load generator was late, p99 {lateness:.1f} ms over {allowed:.1f} ms")
    return causes


def _unequal_work(baseline: Measurement, candidate: Measurement) -> list[str]:
    if baseline.trace_sha256 != candidate.trace_sha256:
        return ["the arms replayed different traces"]
    if baseline.requests != candidate.requests:
        return [f"the arms got {baseline.requests} and {candidate.requests} requests"]
    if baseline.work_sha256 and candidate.work_sha256:
        if baseline.work_sha256 != candidate.work_sha256:
            return ["token counts per request differ between the arms"]
    elif baseline.output_tokens != candidate.output_tokens:
        return [f"the arms wrote {baseline.output_tokens} and {candidate.output_tokens} tokens"]
    return []


def _missing_metrics(baseline: Measurement, candidate: Measurement, head: LedgerHead) -> list[str]:
    causes = []
    for limit in head.gate.metrics:
        if not limit.critical:
            continue
        needed = samples_needed(probability(limit))
        samples = []
        for run in (baseline, candidate):
            found = run.quantiles.get(limit.metric)
            if found is None or not usable(quantile_of(found, limit)):
                causes.append(f"{run.arm}: `{limit.name}` is missing or not above zero")
            else:
                samples.append(found.samples)
        if len(samples) == 2 and samples[0] >= needed > samples[1]:
            causes.append(
                f"candidate: `{limit.name}` has {samples[1]} samples of {needed}, the baseline {samples[0]}"
            )
    return causes


def _lost_samples(pair: Pair, first: Pair, head: LedgerHead) -> list[str]:
    """A metric with enough samples in the first valid pair stays gated: a short pair must not end that."""
    causes = []
    for limit in head.gate.metrics:
        needed = samples_needed(probability(limit))
        enough, found = (min(_samples(p, limit)) for p in (first, pair))
        if limit.critical and enough >= needed > found:
            causes.append(f"`{limit.name}` has {found} samples of {needed}, the first pair had {enough}")
    return causes


def _other_versions(pair: Pair, first: Pair) -> list[str]:
    """A runtime that was exchanged between two pairs: the series would mix two of them."""
    causes = []
    arms = ((first.baseline, pair.baseline), (first.candidate, pair.candidate))
    for before, now in arms:
        versions = [run.runtime_version for run in (before, now) if run is not None and run.runtime_version]
        if now is not None and len(set(versions)) > 1:
            causes.append(f"{now.arm}: runtime version {versions[1]}, the first pair ran {versions[0]}")
    return causes


def _samples(pair: Pair, limit: MetricLimit) -> list[int]:
    runs = (pair.baseline, pair.candidate)
    found = [run.quantiles.get(limit.metric) if run is not None else None for run in runs]
    return [quantiles.samples if quantiles is not None else 0 for quantiles in found]


def _missing_evidence(baseline: Measurement, candidate: Measurement, head: LedgerHead) -> list[str]:
    causes = []
    gate = head.gate
    needed = gate.max_fallback_ratio < 1 or (baseline.graphs is not None and gate.max_fallback_increase < 1)
    if candidate.graphs is None and needed:
        causes.append("candidate: no graph counts (limits of 1.0 on fallbacks would need none)")
    elif needed and not _decode_steps(candidate) and _decode_steps(baseline):
        causes.append("candidate: no decode steps were reported, the baseline has some")
    names = ("memory_bytes", "kv_tokens")
    gone = [name for name in names if getattr(baseline, name) and not getattr(candidate, name)]
    return causes + [f"candidate: `{name}` is missing, the baseline has it" for name in gone]


def _decode_steps(run: Measurement) -> int:
    return run.graphs.decode_steps if run.graphs is not None else 0


def usable(value: float) -> bool:
    """Whether a quantile can be compared: a finite number above zero."""
    return math.isfinite(value) and value > 0


def probability(limit: MetricLimit) -> float:
    """The quantile of a limit as a fraction: 0.95 for p95."""
    return int(limit.quantile[1:]) / 100


def quantile_of(quantiles: Quantiles, limit: MetricLimit) -> float:
    """The value that a limit is about, in the metric's unit."""
    return {"p50": quantiles.p50, "p95": quantiles.p95, "p99": quantiles.p99}[limit.quantile]
