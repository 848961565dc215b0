"""What a measurement of this length cannot prove, in sentences; printed beside every verdict."""

from collections import Counter
from collections.abc import Iterable, Sequence

from trtgate.evidence.ledger import Ledger, Measurement, Pair
from trtgate.verdicts.checks import Finding
from trtgate.verdicts.metrics import MetricVerdict
from trtgate.verdicts.planning import plan_budget
from trtgate.verdicts.stats import zero_event_bound
from trtgate.verdicts.validity import Split
from trtgate.verdicts.words import counted, percent

USABLE_CHANCE = 0.8
WIDE_LIMIT = 1.25
FEW_COMPARED = 0.5
TAILS = ("p95", "p99")


def cannot_prove(
    ledger: Ledger, split: Split, metrics: Sequence[MetricVerdict], findings: Sequence[Finding]
) -> tuple[str, ...]:
    """One sentence for each limit of the evidence."""
    runs = [pair.candidate for pair in ledger.pairs if pair.candidate is not None]
    return (
        *_not_gated(metrics),
        *_tails(metrics),
        *_wide(metrics),
        *_zero_events(runs),
        *_start_variance(split.valid),
        *_noise(ledger, metrics),
        *_not_measured(findings, runs),
        *_notes(ledger.pairs),
        "more concurrency than the replayed trace had was not tried",
    )


def _not_gated(metrics: Iterable[MetricVerdict]) -> list[str]:
    unseen = [m for m in metrics if m.state == "not gated" and (m.critical or m.samples_min)]
    return [f"`{m.name}` was not gated: {m.reason}" for m in unseen]


def _tails(metrics: Sequence[MetricVerdict]) -> list[str]:
    judged = [m for m in metrics if m.critical and m.state in ("passed", "failed", "open")]
    if not judged or any(m.name.endswith(TAILS) for m in judged):
        return []
    return ["no tail decided this verdict: neither a p95 nor a p99 was gated"]


def _wide(metrics: Iterable[MetricVerdict]) -> list[str]:
    """Limits so wide that a person should know what still passes."""
    wide = [m for m in metrics if m.critical and m.limit_ratio is not None and m.limit_ratio > WIDE_LIMIT]
    if not wide:
        return []
    limits = ", ".join(f"`{m.name}` {m.limit_ratio:.2f}x" for m in wide)
    return [f"the limits are wide; anything slower by less than this passes: {limits}"]


def _zero_events(runs: Sequence[Measurement]) -> list[str]:
    if not runs or any(run.failure for run in runs):
        return []
    bound = percent(zero_event_bound(len(runs)))
    return [f"no failure in {counted(len(runs), 'run')} only shows a rate under {bound} a run (95 %)"]


def _start_variance(pairs: Sequence[Pair]) -> list[str]:
    runs = [run for pair in pairs for run in (pair.baseline, pair.candidate) if run is not None]
    if runs and not any(run.start_ms for run in runs):
        return ["start-to-start variance was not seen: the arms were not started for each pair"]
    return []


def _noise(ledger: Ledger, metrics: Sequence[MetricVerdict]) -> list[str]:
    lines = []
    for metric in metrics:
        if metric.sd is None or metric.limit_ratio is None or metric.state in ("advisory", "not gated"):
            continue
        budget = plan_budget(
            metric.sd, metric.limit_ratio - 1, ledger.head.looks, ledger.head.gate.overall_level
        )
        if budget.chance < USABLE_CHANCE:
            lines.append(
                f"`{metric.name}`: with the noise seen (sd {metric.sd:.3f}) an equal candidate passes "
                f"{percent(metric.limit_ratio - 1, 1)} in {percent(budget.chance)} of cases; "
                f"the smallest usable margin is {percent(budget.smallest_margin)}"
            )
    return lines


def _not_measured(findings: Iterable[Finding], runs: Sequence[Measurement]) -> list[str]:
    lines = [f"{f.check}: {f.message}" for f in findings if f.state == "note" and f.limit is not None]
    if runs and not any(run.checked_answers for run in runs):
        lines.append("no answer was compared with the baseline's or with eager")
    checked, answered = (sum(getattr(run, name) for run in runs) for name in ("checked_answers", "succeeded"))
    if 0 < checked < FEW_COMPARED * answered:
        lines.append(f"only {checked} of {answered} answers could be compared with the baseline's")
    if any(run.graphs is not None and run.graphs.predicted for run in runs):
        lines.append("graph replays follow from sizes and buckets; the runtime does not report them")
    return lines


def _notes(pairs: Sequence[Pair]) -> list[str]:
    """What the runs say of themselves, each sentence once for an arm."""
    runs = [run for pair in pairs for run in (pair.baseline, pair.candidate) if run is not None]
    counts = Counter((run.arm, note) for run in runs for note in dict.fromkeys(run.notes))
    return [f"{arm}, {counted(count, 'run')}: {note}" for (arm, note), count in counts.items()]
