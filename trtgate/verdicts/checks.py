"""The hard gates: one function a check over all candidate runs, and the table `CHECKS` that lists them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from trtgate.evidence.ledger import Measurement, Pair
from trtgate.profile import Gate
from trtgate.record import Record
from trtgate.verdicts.looks import Estimate, Standing
from trtgate.verdicts.stats import zero_event_bound
from trtgate.verdicts.words import percent

FindingState = Literal["passed", "failed", "open", "invalid", "note"]


class Finding(Record):
    """What one check found; `open` (not shown yet) and `invalid` withhold a PASS, a `note` does not."""

    check: str
    state: FindingState
    measured: float | None = None
    limit: float | None = None
    unit: str = ""
    message: str
    hint: str = ""


class Outcome(NamedTuple):
    """What the function of a check returns; name and unit come from its line in the table."""

    state: FindingState
    message: str
    measured: float | None = None
    limit: float | None = None
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the checks look at: all candidate runs, those without a cause on our side, valid pairs."""

    gate: Gate
    runs: tuple[tuple[int, Measurement], ...]  # (pair index, candidate), all of them
    own: tuple[tuple[int, Measurement], ...]  # of those, the runs that are valid by themselves
    pairs: tuple[Pair, ...]
    fallback: Estimate | None = None
    fallback_standing: Standing = "open"

    @property
    def arms(self) -> tuple[tuple[int, Measurement, Measurement], ...]:
        """(pair index, baseline, candidate) of the valid pairs."""
        return tuple((p.index, p.baseline, p.candidate) for p in self.pairs if p.candidate is not None)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table."""

    name: str
    unit: str
    function: Callable[[Evidence], Outcome]

    def __call__(self, evidence: Evidence) -> Finding:
        """The finding of this check."""
        outcome = self.function(evidence)._asdict()
        return Finding(check=self.name, unit=self.unit, **outcome)


def check_failures(evidence: Evidence) -> Outcome:
    """A crash, hang or out-of-memory of the candidate in any run, valid or not."""
    failed = [(index, run.failure) for index, run in evidence.runs if run.failure]
    if failed:
        index, failure = failed[0]
        return Outcome(
            "failed",
            f"{len(failed)} of {len(evidence.runs)} candidate runs failed, first in pair {index}: {failure}",
            len(failed),
            0,
            "see the server log of that run",
        )
    n = len(evidence.runs)
    bound = zero_event_bound(n)
    return _needs_runs(
        evidence, Outcome("passed", f"0 of {n} runs failed, a rate under {percent(bound)} a run", 0, 0)
    )


def check_answers(evidence: Evidence) -> Outcome:
    """Wrong answers of the candidate over all that could be compared, in all runs, valid or not."""
    wrong = sum(run.wrong_answers for _, run in evidence.runs)
    checked = sum(run.checked_answers for _, run in evidence.runs)
    limit = evidence.gate.max_wrong_answer_ratio
    if not checked and not wrong:
        return Outcome("note", "no answer was compared")
    ratio = wrong / max(checked, wrong)
    message = f"{wrong} of {checked} compared answers are wrong, limit {percent(limit, 1)}"
    if not _within(ratio, limit):
        return Outcome("failed", message, ratio, limit)
    return Outcome("passed", message if wrong else f"{checked} compared answers agree", ratio, limit)


def check_errors(evidence: Evidence) -> Outcome:
    """Failed over all requests of the candidate, the worst run against the absolute limit."""
    limit = evidence.gate.max_error_ratio
    ratios = [(_failed(run) / run.requests, index, run) for index, run in evidence.own if run.requests > 0]
    if not ratios:
        return _needs_runs(evidence, Outcome("open", "no valid run yet"))
    ratio, index, run = max(ratios, key=lambda item: item[0])
    excluded = sum(_failed(run) for _, run in evidence.own)
    message = f"worst run {percent(ratio, 3)}, limit {percent(limit, 3)}; {excluded} left out of latency"
    if _within(ratio, limit):
        return Outcome("passed", message, ratio, limit)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(run.errors.items()))
    return Outcome(
        "failed", f"{message}; pair {index}: {kinds}", ratio, limit, "see the server log of that run"
    )


def check_error_increase(evidence: Evidence) -> Outcome:
    """Error ratio over the pairs so far, candidate minus baseline, at the worst moment."""
    limit = evidence.gate.max_error_ratio_increase
    if not evidence.arms:
        return _needs_runs(evidence, Outcome("open", "no valid pair yet"))
    counts = np.array(
        [(_failed(c), c.requests, _failed(b), b.requests) for _, b, c in evidence.arms], dtype=np.float64
    ).cumsum(axis=0)
    worst = float(np.max(counts[:, 0] / counts[:, 1] - counts[:, 2] / counts[:, 3]))
    message = f"{percent(max(worst, 0.0), 3)} more than the baseline, limit {percent(limit, 3)}"
    return Outcome("passed" if _within(worst, limit) else "failed", message, worst, limit)


def check_fallback(evidence: Evidence) -> Outcome:
    """Decode steps outside a captured graph, the worst run against the absolute limit."""
    limit = evidence.gate.max_fallback_ratio
    found = [
        (index, run.graphs.decode_fallback_ratio) for index, run in evidence.own if run.graphs is not None
    ]
    ratios = [(ratio, index) for index, ratio in found if ratio is not None]
    if not ratios:
        return _unmeasured(evidence, limit, "no decode steps were reported")
    ratio = max(ratios)[0]
    message = f"worst run {percent(ratio, 2)} of decode steps eager, limit {percent(limit, 2)}"
    if _within(ratio, limit):
        return Outcome("passed", message, ratio, limit)
    reasons: dict[str, int] = {}
    for _, run in evidence.own:
        for reason, count in (run.graphs.reasons if run.graphs else {}).items():
            reasons[reason] = reasons.get(reason, 0) + count
    because = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:3]
    message += f"; first in pair {min(index for r, index in ratios if r == ratio)}: "
    message += ", ".join(f"{count} {reason}" for reason, count in because) or "no reasons given"
    return Outcome("failed", message, ratio, limit, "widen the decode grid")


def check_fallback_increase(evidence: Evidence) -> Outcome:
    """The fallback ratio against the baseline's, with the paired bound on the plain difference."""
    limit = evidence.gate.max_fallback_increase
    found = evidence.fallback
    if found is None:
        reported = [
            all(run.graphs and run.graphs.decode_steps for run in (b, c)) for _, b, c in evidence.arms
        ]
        if limit >= 1 or not any(reported):
            return _unmeasured(evidence, limit)
        few = all(reported)
        return Outcome("open", "too few pairs" if few else "not measured in every pair", None, limit)
    lower, upper = (percent(x, 2, sign=True) for x in (found.lower, found.upper))
    mean, against = percent(found.mean, 2, sign=True), percent(limit, 2)
    if evidence.fallback_standing.startswith("regression"):
        message = f"{mean}, lower bound {lower}, limit {against}, {found.pairs} pairs"
        return Outcome("failed", message, found.mean, limit, "widen the decode grid")
    bound = f"{100 * (1 - evidence.gate.overall_level):.3g} % bound {upper}"
    message = f"{mean}, {bound} {'<' if found.upper < limit else '>='} {against}, {found.pairs} pairs"
    if evidence.fallback_standing == "passed":
        return Outcome("passed", message, found.mean, limit)
    return Outcome("open", message, found.mean, limit, "measure more pairs")


def check_padding(evidence: Evidence) -> Outcome:
    """Padded over real tokens of all valid pairs, candidate minus baseline."""
    limit = evidence.gate.max_padding_increase
    baseline = _padding([b for _, b, _ in evidence.arms])
    candidate = _padding([c for _, _, c in evidence.arms])
    if baseline is None or candidate is None:
        return _unmeasured(evidence, limit)
    measured = candidate - baseline
    both = f"{percent(candidate - 1, 1)} against {percent(baseline - 1, 1)}"
    message = f"{both} padding, limit {percent(limit, sign=True)}"
    return Outcome("passed" if _within(measured, limit) else "failed", message, measured, limit)


def check_memory(evidence: Evidence) -> Outcome:
    """Device memory of the candidate over the baseline's, the worst pair."""
    limit = evidence.gate.max_memory_increase
    worst = _worst_ratio(evidence, "memory_bytes", largest=True)
    if worst is None:
        return _unmeasured(evidence, limit)
    measured = worst - 1
    message = f"{percent(measured, 1, sign=True)} in the worst pair, limit {percent(limit, 1, sign=True)}"
    return Outcome("passed" if _within(measured, limit) else "failed", message, measured, limit)


def check_kv_capacity(evidence: Evidence) -> Outcome:
    """KV tokens of the candidate over the baseline's, the worst pair."""
    limit = evidence.gate.min_kv_ratio
    worst = _worst_ratio(evidence, "kv_tokens", largest=False)
    if worst is None:
        return _unmeasured(evidence, limit)
    message = f"{worst:.3f} of the baseline's KV tokens, limit {limit:.3f}"
    if _within(limit, worst):
        return Outcome("passed", message, worst, limit)
    return Outcome("failed", message, worst, limit, "capture fewer or smaller graphs")


CHECKS: tuple[Check, ...] = (
    Check("runtime failures", "runs", check_failures),
    Check("wrong answers", "of answers", check_answers),
    Check("error ratio", "of requests", check_errors),
    Check("error ratio increase", "of requests", check_error_increase),
    Check("decode fallback", "of decode steps", check_fallback),
    Check("decode fallback increase", "of decode steps", check_fallback_increase),
    Check("padding increase", "of real tokens", check_padding),
    Check("memory increase", "of the baseline", check_memory),
    Check("KV capacity ratio", "of the baseline", check_kv_capacity),
)


def _within(measured: float, limit: float) -> bool:
    return measured <= limit + 1e-9  # 1 - 950/1000 is a little more than 0.05


def _unmeasured(evidence: Evidence, limit: float, why: str = "not measured in both arms") -> Outcome:
    return (
        Outcome("note", why, None, limit)
        if evidence.arms
        else Outcome("open", "no valid pair yet", None, limit)
    )


def _needs_runs(evidence: Evidence, outcome: Outcome) -> Outcome:
    return outcome if evidence.runs else Outcome("open", "the candidate was not run")


def _failed(run: Measurement) -> int:
    return run.requests - run.succeeded


def _padding(runs: list[Measurement]) -> float | None:
    counts = [run.graphs for run in runs if run.graphs is not None]
    real = sum(count.real_tokens for count in counts)
    return sum(count.padded_tokens for count in counts) / real if real > 0 else None


def _worst_ratio(evidence: Evidence, name: str, *, largest: bool) -> float | None:
    both: list[tuple[int | None, int | None]] = [
        (getattr(b, name), getattr(c, name)) for _, b, c in evidence.arms
    ]
    ratios = [candidate / baseline for baseline, candidate in both if baseline and candidate is not None]
    if not ratios:
        return None
    return max(ratios) if largest else min(ratios)
