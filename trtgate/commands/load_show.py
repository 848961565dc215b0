"""A finished load as a record and as text of 80 columns: first whether it may be believed, then the numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any, Literal

import numpy as np

from trtgate.commands.load_shape import Plan
from trtgate.console import WIDTH, percent, table
from trtgate.errors import ExitCode
from trtgate.loads.base import LoadResult, Progress, Target
from trtgate.loads.metrics import Spread, Summary, summary
from trtgate.loads.offsets import WorkerClock
from trtgate.loads.peers import peer_samples
from trtgate.loads.selfcheck import Selfcheck
from trtgate.loads.validity import valid
from trtgate.record import Record

METRICS = (
    "ttft_ms",
    "ttft_from_send_ms",
    "itl_ms",
    "itl_token_ms",
    "itl_mean_ms",
    "tpot_ms",
    "worst_gap_ms",
    "e2e_ms",
    "e2e_from_send_ms",
)
FEW_SAMPLES = 20  # above a quantile; with fewer it is an anecdote (`docs/metrics.md`)
_QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))
_DETAIL = 200
_INDENT = 12


class PeerSpread(Record):
    """A metric as another tool defines and interpolates it, in ms."""

    n: int
    mean: float
    p50: float
    p99: float


class LoadReport(Record):
    """One run of `trtgate load`; with `reasons` it is invalid, whatever the numbers look like."""

    schema_version: Literal[1] = 1
    url: str
    model: str
    path: str
    load: str
    trace: tuple[dict[str, Any], ...]
    margin: float
    reasons: tuple[str, ...]
    interrupted: bool
    details: dict[str, str]  # what the server said, once for each kind of error
    summary: Summary
    peers: dict[str, PeerSpread] | None
    selfcheck: Selfcheck | None
    clocks: tuple[WorkerClock, ...] = ()  # of the workers of a cluster

    @property
    def exit_code(self) -> ExitCode:
        """130 after an interrupt, 12 for an invalid run, else 0."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        return ExitCode.INVALID if self.reasons else ExitCode.DONE


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be known of a run: differences of `margin`, goodput within `goals_ms`, the peers' words."""

    margin: float
    goals_ms: Mapping[str, float]
    peers: bool = False
    selfcheck: Selfcheck | None = None


def report_load(
    target: Target,
    plan: Plan,
    result: LoadResult,
    question: Question,
    *,
    workers: int = 1,
    faults: Sequence[str] = (),
    interrupted: bool = False,
    clocks: Sequence[WorkerClock] = (),
) -> LoadReport:
    """Put everything about a run together; `faults` are reasons found outside the result.

    The self-check is of one process, so `workers` of them are believed for as many times its rate.
    """
    check = question.selfcheck
    believed = None if check is None else check.believed_tokens_per_s * workers
    details: dict[str, str] = {}
    for answer in result.answers:
        if answer.error is not None and answer.detail:
            details.setdefault(answer.error, " ".join(answer.detail.split())[:_DETAIL])
    return LoadReport(
        url=target.url,
        model=target.model,
        path=target.path,
        load=plan.said,
        trace=plan.sources,
        margin=question.margin,
        reasons=(*faults, *valid(result, question.margin, believed_tokens_per_s=believed)),
        interrupted=interrupted,
        details=details,
        summary=summary(result, question.goals_ms or None),
        peers=_peers(result) if question.peers else None,
        selfcheck=check,
        clocks=tuple(clocks),
    )


def show_load(report: LoadReport) -> str:
    """The result at 80 columns."""
    parts = [*_head(report), "", *_counts(report), "", _metrics(report.summary)]
    if report.peers is not None:
        parts += ["", _peer_table(report.peers)]
    return "\n".join([*parts, "", *_instrument(report)])


def show_selfcheck(check: Selfcheck) -> str:
    """The levels tried against a server whose answers are known, and up to which the client is believed."""
    heads = ("tokens/s", "TTFT p99 sent", "got", "ITL p99 sent", "got", "error", "failed")
    rows = [
        (
            f"{level.tokens_per_s:,.0f}",
            *map(_ms, (level.ttft_sent_ms, level.ttft_got_ms, level.itl_sent_ms, level.itl_got_ms)),
            _ms(level.error_ms),
            level.failed,
        )
        for level in check.levels
    ]
    return "\n".join([table(heads, rows, left=0), "", fill(said_selfcheck(check), WIDTH)])


def said_selfcheck(check: Selfcheck) -> str:
    """The self-check in one sentence."""
    if check.believed_tokens_per_s > 0:
        return (
            f"self-check: believed up to {check.believed_tokens_per_s:,.0f} tokens/s on this host, "
            f"where p99 of TTFT and ITL are within {check.limit_ms:g} ms of the truth"
        )
    return f"self-check: not believed on this host, p99 is off by more than {check.limit_ms:g} ms at any rate"


def said_progress(now: Progress) -> str:
    """One line while the load runs."""
    rate = now.sent / now.elapsed_s if now.elapsed_s > 0 else 0.0
    return (
        f"{now.elapsed_s:.0f} s: sent {now.sent}/{now.asked}, {rate:.1f}/s, running {now.running}, "
        f"failed {now.failed}, TTFT {_ms(now.ttft_ms)}, TPOT {_ms(now.tpot_ms)} ms"
    )


def _head(report: LoadReport) -> list[str]:
    if report.reasons:
        return [
            f"INVALID (exit {int(report.exit_code)}): these numbers prove nothing",
            *(_line("", reason) for reason in report.reasons),
        ]
    return [f"VALID: differences of {percent(report.margin, 0)} and more are not the client's doing"]


def _counts(report: LoadReport) -> list[str]:
    found = report.summary
    sources = ", ".join(sorted(found.tokens_sources)) or "none"
    lines = [
        _line("server", f"{report.url}{report.path}, model `{report.model}`"),
        _line("load", report.load),
        _line(
            "requests",
            f"{found.complete} of {found.asked} complete, {found.failed} failed, {found.queued} queued; "
            f"{found.duration_s:.1f} s, {found.requests_per_s:.2f} requests/s",
        ),
    ]
    for kind, count in sorted(found.errors.items(), key=lambda item: -item[1]):
        said = report.details.get(kind)
        lines.append(_line("error", f"{count} {kind}" + (f": {said}" if said else "")))
    lines.append(
        _line(
            "tokens",
            f"{found.tokens:,} out, {found.tokens_per_s:,.1f} tokens/s; {found.prompt_tokens:,} in; "
            f"counted by {sources}",
        )
    )
    stalls = found.stalls
    lines.append(
        _line("stalls", f"{stalls.gaps} gaps above {stalls.limit_ms:g} ms, in {stalls.requests} requests")
    )
    if found.goodput is not None:
        good = found.goodput
        limits = ", ".join(f"{name} <= {value:g}" for name, value in good.limits_ms.items())
        lines.append(
            _line(
                "goodput",
                f"{percent(good.share)} of requests within {limits} "
                f"(95 % interval {percent(good.low)} to {percent(good.high)})",
            )
        )
    if found.tokens and not found.token_gaps_reliable:
        lines.append(_line("note", "several tokens come in one chunk: use `tpot_ms` instead of `itl_ms`"))
    return lines


def _metrics(found: Summary) -> str:
    rows = [(name, *_row(found.metrics[name])) for name in METRICS if name in found.metrics]
    if not rows:
        return "no metrics: no request completed"
    text = table(("metric", "samples", "p50", "p95", "p99", "p99.9", "max"), rows)
    note = f"~ fewer than {FEW_SAMPLES} samples lie above it: an anecdote, not a quantile"
    return f"{text}\n{note}" if "~" in text else text


def _row(spread: Spread) -> tuple[object, ...]:
    shown = [
        ("~" if spread.n * (1 - p) < FEW_SAMPLES else "") + _ms(getattr(spread, name))
        for name, p in _QUANTILES
    ]
    return (spread.n, *shown, _ms(spread.max))


def _instrument(report: LoadReport) -> list[str]:
    bar: dict[str, Any] = report.summary.instrument
    source = "from the kernel" if bar["lag_source"] == "kernel" else "of reading, not from the kernel"
    lines = [
        _line(
            "instrument",
            f"sent late by p50 {_ms(bar['late_p50_ms'])}, p99 {_ms(bar['late_p99_ms'])}, "
            f"max {_ms(bar['late_max_ms'])} ms",
        ),
        _line("", f"read late by p99 {_ms(bar['lag_p99_ms'])} ms; times {source}"),
        _line(
            "",
            f"delivered {percent(bar['delivered'])} of the load; used {percent(bar['cpu'])} of a core, "
            f"waited for one {percent(bar['starved'])} of the time",
        ),
        _line(
            "",
            f"chunks that could not be told apart {percent(bar['blind'], 2)}; "
            f"clock moved {_ms(bar['clock_step_ms'])} ms",
        ),
    ]
    if report.selfcheck is not None:
        lines.append(_line("", said_selfcheck(report.selfcheck)))
    if report.clocks:
        lines.append(_line("clocks", _said_clocks(report.clocks)))
    return lines


def _said_clocks(clocks: Sequence[WorkerClock]) -> str:
    offsets_ms = [clock.offset_ms for clock in clocks]
    worst = max(clocks, key=lambda clock: clock.error_ms)
    return (
        f"of {len(clocks)} workers, {min(offsets_ms):+.2f} to {max(offsets_ms):+.2f} ms from this one; "
        f"each started within {worst.error_ms:.2f} ms of its time (the worst is `{worst.worker}`)"
    )


def _peers(result: LoadResult) -> dict[str, PeerSpread]:
    return {
        f"{tool} {name}": PeerSpread(
            n=values.size,
            mean=float(values.mean()),
            p50=float(np.percentile(values, 50)),
            p99=float(np.percentile(values, 99)),
        )
        for tool, metrics in peer_samples(result).items()
        for name, values in metrics.items()
        if values.size
    }


def _peer_table(peers: Mapping[str, PeerSpread]) -> str:
    rows = [(name, one.n, _ms(one.mean), _ms(one.p50), _ms(one.p99)) for name, one in peers.items()]
    return table(("the same run by others, ms", "n", "mean", "p50", "p99"), rows)


def _ms(value: float) -> str:
    if value != value:  # noqa: PLR0124 - nan: nothing ended since the last line
        return "-"
    return f"{value:.2f}" if value < 100 else f"{value:.1f}" if value < 10_000 else f"{value:.0f}"


def _line(name: str, text: str) -> str:
    return fill(
        text,
        WIDTH,
        initial_indent=f"{name:<{_INDENT}}",
        subsequent_indent=" " * _INDENT,
        break_on_hyphens=False,
        drop_whitespace=True,
    )
