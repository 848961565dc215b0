"""Pairs of runs, baseline and candidate in turn, over the same stretch of real traffic."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from trtgate.console import Console
from trtgate.errors import UsageError
from trtgate.evidence.arm import Arm
from trtgate.evidence.ledger import Ledger, Pair
from trtgate.evidence.measure import Run, Window, compare_answers, measure
from trtgate.evidence.staircase import DEFAULT_VOCAB
from trtgate.loads.arrivals import asks_from_columns
from trtgate.profile import Profile
from trtgate.traces.base import Trace

Enough = Callable[[Ledger], bool]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two arms and the traffic of one replica, already scaled and sped up."""

    candidate: Arm
    baseline: Arm
    trace: Trace
    logs: Path
    ledger_path: Path
    believed_tokens_per_s: float | None = None  # by the self-check of the load generator


def measure_pairs(comparison: Comparison, ledger: Ledger, enough: Enough, console: Console) -> Ledger:
    """Add pairs to the ledger until `enough` says so; the file is written after each, so that it can be resumed."""
    ledger.write(comparison.ledger_path)
    while not enough(ledger):
        ledger = ledger.with_pair(_measure_pair(comparison, len(ledger.pairs) + 1, console))
        ledger.write(comparison.ledger_path)
    return ledger


def cut_window(trace: Trace, profile: Profile, index: int) -> Window:
    """The stretch of the trace for pair `index`, chosen by the profile's seed; the same for both arms.

    Refuses a trace with fewer than two requests in the window.
    """
    settings = profile.canary
    seed = settings.seed * 1000 + index
    starts = max(1, int(np.searchsorted(trace.arrival_s, trace.span_s - settings.window_s, side="right")))
    start_s = float(trace.arrival_s[np.random.default_rng(seed).integers(starts)])
    end_s = start_s + settings.window_s
    part = trace.between(start_s, end_s)
    if len(part) < 2:
        raise UsageError(
            f"only {len(part)} request lies in a window of {settings.window_s:g} s",
            "give a longer trace, raise `canary.window_s` or `traffic.speed_up`",
        )
    vocab = profile.model.vocab_size or DEFAULT_VOCAB
    asks = asks_from_columns(
        part.arrival_s, part.prompt_tokens, part.output_tokens, vocab_size=vocab, seed=seed
    )
    warm_part = trace.between(0.0, trace.span_s)
    count = min(settings.warm_requests, len(warm_part))
    warm = asks_from_columns(
        np.zeros(count),
        warm_part.prompt_tokens[:count],
        warm_part.output_tokens[:count],
        vocab_size=vocab,
        seed=seed + 500_000,
    )
    if profile.warmup.logprob_tolerance > 0:
        asks = [replace(ask, logprobs=1) for ask in asks]
    return Window(tuple(asks), tuple(warm), part.digest, (round(start_s, 3), round(end_s, 3)), seed)


def describe_run(run: Run) -> str:
    """One line about a finished run."""
    found = run.measurement
    if found.failure:
        return f"{found.title} failed: {found.failure}"
    shown = ", ".join(
        f"{name.removesuffix('_ms')} {found.quantiles[name].p50:.1f}/{found.quantiles[name].p95:.1f}"
        for name in ("ttft_ms", "tpot_ms", "e2e_ms")
        if name in found.quantiles
    )
    return f"{found.title}: {found.succeeded} of {found.requests} answered; p50/p95 ms: {shown}"


def _measure_pair(comparison: Comparison, index: int, console: Console) -> Pair:
    baseline_first = index % 2 == 1
    profile = comparison.candidate.profile
    window = cut_window(comparison.trace, profile, index)

    def run(arm: Arm) -> Run:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        believed = comparison.believed_tokens_per_s
        done = measure(arm, window, comparison.logs, now, console, rules=profile, believed=believed)
        console.step(f"pair {index}: {describe_run(done)}")
        return done

    if baseline_first:
        baseline = run(comparison.baseline)
        candidate = run(comparison.candidate)
    else:
        candidate = run(comparison.candidate)
        baseline = run(comparison.baseline)
    return Pair(
        index=index,
        order="baseline-first" if baseline_first else "candidate-first",
        seed=window.seed,
        segment_s=window.segment_s,
        baseline=baseline.measurement,
        candidate=compare_answers(baseline, candidate, profile.warmup.logprob_tolerance),
    )
