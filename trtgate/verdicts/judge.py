"""The judge: from a ledger to a verdict, by `release-gate.md` 2.2 to 2.7; reads no clock, file or network."""

import json
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trtgate.errors import ExitCode, UsageError
from trtgate.evidence.ledger import Ledger, Pair
from trtgate.record import Record, sha256
from trtgate.verdicts.checks import CHECKS, Evidence, Finding
from trtgate.verdicts.limits_of_proof import cannot_prove
from trtgate.verdicts.looks import Series, Walk, difference_series, estimate, walk
from trtgate.verdicts.metrics import MetricData, MetricVerdict, describe, read_metric, report
from trtgate.verdicts.shapes import shape_verdicts
from trtgate.verdicts.stats import level_per_look
from trtgate.verdicts.validity import MAX_REPLACED, Split, run_causes, split_pairs

JUDGE_VERSION = "1"
FALLBACK = "decode fallback increase"

Result = Literal["pass", "fail", "inconclusive", "invalid"]
EXIT_CODES: dict[Result, ExitCode] = {
    "pass": ExitCode.DONE,
    "fail": ExitCode.FAIL,
    "inconclusive": ExitCode.INCONCLUSIVE,
    "invalid": ExitCode.INVALID,
}


class Verdict(Record):
    """What the evidence means; `look` counts from 1 (0: before the first), `pairs_valid` those counted."""

    schema_version: Literal[1] = 1
    name: str
    result: Result
    reason: str
    look: int
    pairs_valid: int
    pairs_replaced: int
    metrics: tuple[MetricVerdict, ...]
    findings: tuple[Finding, ...]
    cannot_prove: tuple[str, ...]
    candidate_sha256: str
    baseline: str
    baseline_sha256: str
    ledger_sha256: str
    policy_sha256: str
    attempt: int = 1
    judge_version: str = JUDGE_VERSION

    @property
    def exit_code(self) -> ExitCode:
        """0 for `pass`, 10 for `fail`, 11 for `inconclusive`, 12 for `invalid`."""
        return EXIT_CODES[self.result]


class Step(Record):
    """Whether to measure on; `to_go` is the number of valid pairs missing to the next look."""

    action: Literal["stop", "measure"]
    reason: str
    to_go: int = 0


@dataclass(frozen=True, slots=True)
class _Case:
    """A ledger taken apart once, for the verdict and for the next step."""

    ledger: Ledger
    split: Split
    data: tuple[MetricData, ...]
    series: tuple[Series, ...]
    walk: Walk
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.state == "failed"]

    @property
    def gated(self) -> list[MetricData]:
        return [data for data in self.data if data.limit.critical and data.gateable]

    @property
    def hopeless(self) -> bool:
        """No critical metric can be gated: samples a run do not grow with more pairs."""
        return bool(self.split.valid) and not self.gated


def judge(ledger: Ledger) -> Verdict:
    """The verdict on the ledger as it stands, as if nothing more were measured."""
    case = _open_case(ledger, stop=True)
    result, reason = _result(case)
    head = ledger.head
    metrics = (*(_describe(case, data) for data in case.data), *shape_verdicts(_counted(case), head))
    return Verdict(
        name=head.name,
        result=result,
        reason=reason,
        look=case.walk.look,
        pairs_valid=case.walk.pairs or len(case.split.valid),
        pairs_replaced=len(case.split.invalid),
        metrics=metrics,
        findings=case.findings,
        cannot_prove=cannot_prove(ledger, case.split, metrics, case.findings),
        candidate_sha256=head.candidate_sha256,
        baseline=head.baseline,
        baseline_sha256=head.baseline_sha256,
        ledger_sha256=ledger_digest(ledger),
        policy_sha256=head.policy_sha256,
        attempt=head.attempt,
    )


def next_step(ledger: Ledger) -> Step:
    """After each pair: stop, or measure on to the next look; only planned looks can decide."""
    case = _open_case(ledger, stop=False)
    valid, looks = len(case.split.valid), ledger.head.looks
    if case.failed:
        return Step(action="stop", reason=f"{case.failed[0].check}: {case.failed[0].message}")
    if case.walk.result != "open":
        return Step(action="stop", reason=_walk_reason(case))
    if case.split.exhausted:
        return Step(action="stop", reason=f"more than {MAX_REPLACED} pairs had to be replaced")
    if case.hopeless:
        return Step(action="stop", reason="no critical metric has enough samples a run")
    if valid >= looks[-1]:
        return Step(action="stop", reason="that was the last look")
    due = next(n for n in looks if n > valid)
    return Step(action="measure", reason=f"{valid} of {due} valid pairs to the next look", to_go=due - valid)


def ledger_digest(ledger: Ledger) -> str:
    """The sha256 of the ledger's file, one JSON line for the head and each pair."""
    records = (ledger.head, *ledger.pairs)
    lines = [json.dumps(record.model_dump(mode="json"), sort_keys=True) + "\n" for record in records]
    return sha256("".join(lines).encode())


def _open_case(ledger: Ledger, *, stop: bool) -> _Case:
    looks = ledger.head.looks
    if not looks or looks[0] < 2 or list(looks) != sorted(set(looks)):
        raise UsageError(f"the ledger has looks {list(looks)}", "expected ascending numbers of pairs, from 2")
    split, gate = split_pairs(ledger), ledger.head.gate
    data = tuple(read_metric(limit, split.valid) for limit in gate.metrics)
    series = tuple(item.series for item in data if item.limit.critical and item.gateable)
    fallback = _fallback_series(split.valid, gate.max_fallback_increase)
    stop = stop and not split.exhausted
    all_series = (*series, fallback) if series and fallback else series
    state = walk(all_series, looks, len(split.valid), gate.overall_level, m=max(len(series), 1), stop=stop)
    runs = tuple((pair.index, pair.candidate) for pair in ledger.pairs if pair.candidate is not None)
    evidence = Evidence(
        gate=gate,
        runs=runs,
        own=tuple((i, run) for i, run in runs if not run.failure and not run_causes(run, ledger.head)),
        pairs=split.valid,
        fallback=state.estimates.get(FALLBACK),
        fallback_standing=state.standings.get(FALLBACK, "open"),
    )
    findings = (*(check(evidence) for check in CHECKS), *_notes(ledger, split))
    return _Case(ledger, split, data, series, state, findings)


def _fallback_series(pairs: tuple[Pair, ...], limit: float) -> Series | None:
    d = []
    for pair in pairs:
        graphs = (pair.baseline.graphs, pair.candidate.graphs if pair.candidate else None)
        ratios = [counts.decode_fallback_ratio for counts in graphs if counts is not None]
        both = [ratio for ratio in ratios if ratio is not None]
        if len(both) < 2:
            return None
        d.append(both[1] - both[0])
    return difference_series(FALLBACK, np.array(d), limit) if d and limit < 1 else None


def _notes(ledger: Ledger, split: Split) -> list[Finding]:
    found = [
        Finding(check=f"pair {pair.index}", state="invalid", message="; ".join(pair.causes))
        for pair in split.invalid
    ]
    first = sum(pair.order == "baseline-first" for pair in split.valid)
    if abs(2 * first - len(split.valid)) > 1 + len(split.invalid):
        message = f"{first} of {len(split.valid)} pairs ran the baseline first"
        found.append(Finding(check="order", state="note", message=message, hint="alternate the order"))
    if ledger.head.attempt > 1:
        message = f"attempt {ledger.head.attempt}: {ledger.head.attempt_reason or 'no reason given'}"
        found.append(Finding(check="attempt", state="note", message=message))
    return found


def _result(case: _Case) -> tuple[Result, str]:
    hard = [finding for finding in case.failed if finding.check != FALLBACK]
    if hard:
        return "fail", f"{hard[0].check}: {hard[0].message}"
    if case.walk.result == "fail":
        return "fail", _walk_reason(case)
    invalid = _why_invalid(case)
    if invalid:
        return "invalid", invalid
    if case.walk.result == "pass":
        return _passed(case)
    return "inconclusive", _walk_reason(case)


def _why_invalid(case: _Case) -> str:
    """Return why there is no verdict; empty if there is one."""
    valid, first = len(case.split.valid), case.ledger.head.looks[0]
    invalid = case.split.invalid
    why = f"; pair {invalid[-1].index}: {invalid[-1].causes[0]}" if invalid else ""
    if case.split.exhausted and case.walk.result != "pass":
        return f"{len(invalid)} pairs were invalid, at most {MAX_REPLACED} may be{why}"
    if case.hopeless:
        return "no critical metric has enough samples a run to be gated"
    return f"not enough valid pairs: {valid} of {first}{why}" if valid < first else ""


def _passed(case: _Case) -> tuple[Result, str]:
    open_ = [finding for finding in case.findings if finding.state == "open"]
    if open_:
        return "inconclusive", f"{open_[0].check}: {open_[0].message}"
    return "pass", _walk_reason(case)


def _walk_reason(case: _Case) -> str:
    state = case.walk
    pairs = f"after {state.pairs} pairs"
    names = {
        standing: [n for n, s in state.standings.items() if s == standing]
        for standing in state.standings.values()
    }
    if state.result == "pass":
        n = len(case.gated)
        which = f"all {n} gated metrics are" if n > 1 else "the one gated metric is"
        return f"{which} shown to stay within the limit {pairs}"
    for standing, verb in (("regression_proven", "proven"), ("regression_likely", "likely")):
        if standing in names:
            return f"{', '.join(names[standing])} regressed beyond the limit ({verb}) {pairs}"
    return f"{', '.join(names.get('open', []))} could not be shown to stay within the limit {pairs}"


def _counted(case: _Case) -> tuple[Pair, ...]:
    return case.split.valid[: case.walk.pairs or len(case.split.valid)]


def _describe(case: _Case, data: MetricData) -> MetricVerdict:
    head, state = case.ledger.head, case.walk
    overall, name = head.gate.overall_level, data.limit.name
    level = state.level or level_per_look(head.looks, overall)
    if not data.limit.critical or not data.gateable:
        return report(data, state.pairs or len(data.baseline), level, overall)
    found = state.estimates.get(name)
    if found is None and len(data.baseline) >= 2:
        found = estimate(data.series, len(data.baseline), level, len(case.series), overall)
    return describe(data, found, state.standings.get(name, "open"), level, overall)
