"""One run: a fresh start, requests that do not count, one window of load, and what the runtime says of it."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from trtgate.console import Console
from trtgate.errors import InvalidMeasurementError, RuntimeFailedError
from trtgate.evidence.answers import count_wrong
from trtgate.evidence.arm import Arm, started, target_of
from trtgate.evidence.ledger import GraphCounts, Measurement, Quantiles
from trtgate.evidence.watch import Watch
from trtgate.loads.base import Answer, Ask, LoadResult, Progress
from trtgate.loads.metrics import quantile, samples
from trtgate.loads.run import run_load
from trtgate.loads.validity import valid
from trtgate.profile import Gate, Profile
from trtgate.record import sha256
from trtgate.runtimes.base import Step
from trtgate.runtimes.process import Server
from trtgate.runtimes.stats import Poller


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The load of one pair: the same requests for both arms, and those sent before, which do not count."""

    asks: tuple[Ask, ...]
    warm: tuple[Ask, ...]
    trace_sha256: str
    segment_s: tuple[float, float]
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A measurement with its answers, which are compared between the arms and then dropped."""

    measurement: Measurement
    answers: tuple[Answer, ...]


def measure(
    arm: Arm,
    window: Window,
    logs: Path,
    now: str,
    console: Console,
    *,
    rules: Profile | None = None,
    believed: float | None = None,
) -> Run:
    """Start the arm, warm it, send the window, stop it; a failing runtime is a result, not an error.

    `rules` is the profile whose time-outs and limits hold for both arms; `believed` the rate in tokens/s up to which
    the self-check trusts the load generator.
    """
    try:
        return _measure(arm, window, logs, now, console, rules=rules or arm.profile, believed=believed)
    except RuntimeFailedError as error:
        blank = _measurement(arm, window, now, ())
        return Run(blank.model_copy(update={"failure": error.message}), ())
    except InvalidMeasurementError as error:
        blank = _measurement(arm, window, now, ())
        return Run(blank.model_copy(update={"invalid": (error.message,)}), ())


def _measure(
    arm: Arm,
    window: Window,
    logs: Path,
    now: str,
    console: Console,
    *,
    rules: Profile,
    believed: float | None,
) -> Run:
    settings = rules.canary
    stem = f"{arm.name}-{window.seed}"
    with started(arm, logs / f"{stem}.log", console) as server:
        grids = arm.runtime.effective_grids(arm.config, arm.version)[0]
        target = target_of(server, arm.profile)
        with Poller(server, arm.runtime, grids, arm.config, logs / f"{stem}-steps.jsonl") as poller:
            if window.warm:
                run_load(target, window.warm, timeout_s=settings.request_timeout_s, drain_s=settings.drain_s)
            poller.drain()
            mark = poller.mark()
            with Watch(server) as watch:
                result = run_load(
                    target,
                    window.asks,
                    timeout_s=settings.request_timeout_s,
                    drain_s=settings.drain_s,
                    progress=lambda now: console.progress(describe_progress(arm.title, now)),
                    stop=watch.stopped,
                )
                console.progress_done()
                watch.require_well()
            poller.drain()
            steps = poller.steps_since(mark)
        measurement = _measurement(arm, window, now, result.answers)
        found = _with_results(measurement, result, steps, server)
        invalid = own_faults(result, rules.gate, found.quantiles, believed)
        notes = (*poller.warnings, *server.warnings, *_other_version(arm, server.version))
        return Run(found.model_copy(update={"invalid": invalid, "notes": notes}), result.answers)


def describe_progress(title: str, progress: Progress) -> str:
    """One line while the load runs."""
    return (
        f"{title}: {progress.elapsed_s:.0f} s, sent {progress.sent} of {progress.asked}, running {progress.running}, "
        f"failed {progress.failed}"
    )


def compare_answers(baseline: Run, candidate: Run, tolerance: float) -> Measurement:
    """The candidate's measurement with the number of its answers that differ from the baseline's."""
    checked, wrong = count_wrong(baseline.answers, candidate.answers, tolerance)
    return candidate.measurement.model_copy(update={"checked_answers": checked, "wrong_answers": wrong})


def count_graphs(steps: Sequence[Step]) -> GraphCounts | None:
    """Replays, fallbacks with their reasons, padding and median step times; None where the runtime reported nothing."""
    if not steps:
        return None
    replayed = [step for step in steps if step.replayed and step.bucket]
    times: dict[str, list[float]] = defaultdict(list)
    for step in steps:
        if step.step_ms is not None:
            times[f"{step.kind}:{step.bucket}" if step.replayed else f"eager:{step.kind}"].append(
                step.step_ms
            )
    return GraphCounts(
        decode_steps=sum(step.kind == "decode" for step in steps),
        decode_replayed=sum(step.kind == "decode" for step in replayed),
        token_steps=sum(step.kind == "tokens" for step in steps),
        token_replayed=sum(step.kind == "tokens" for step in replayed),
        real_tokens=sum(step.size for step in replayed),
        padded_tokens=sum(step.bucket or 0 for step in replayed),
        reasons=dict(
            Counter(f"{step.kind}: {step.reason or 'unknown'}" for step in steps if not step.replayed)
        ),
        predicted=any(step.predicted for step in steps),
        step_ms={key: round(median(values), 4) for key, values in sorted(times.items())},
        step_counts={key: len(values) for key, values in sorted(times.items())},
    )


def _measurement(arm: Arm, window: Window, now: str, answers: Sequence[Answer]) -> Measurement:
    failed = Counter(answer.error for answer in answers if answer.error is not None)
    return Measurement(
        arm=arm.name,
        title=arm.title,
        started=now,
        trace_sha256=window.trace_sha256,
        requests=len(answers),
        succeeded=len(answers) - failed.total(),
        errors=dict(sorted(failed.items())),
        output_tokens=sum(answer.tokens for answer in answers if answer.ok),
        work_sha256=sha256(repr(work_of(window.asks, answers)).encode()),
    )


def work_of(asks: Sequence[Ask], answers: Sequence[Answer]) -> list[tuple[int, int]]:
    """Prompt and output tokens of each request as the server counted them, as asked for where it did not answer."""
    done = {answer.index: answer for answer in answers if answer.ok}
    return [
        (done[index].prompt_tokens or len(ask.prompt), done[index].tokens)
        if index in done
        else (len(ask.prompt), ask.max_tokens)
        for index, ask in enumerate(asks)
    ]


def _other_version(arm: Arm, version: str | None) -> list[str]:
    if None in (arm.judged_version, version) or arm.judged_version == version:
        return []
    return [
        f"{arm.title} was judged on version {arm.judged_version} of the runtime and ran on {version} here"
    ]


def own_faults(
    result: LoadResult, gate: Gate, quantiles: Mapping[str, Quantiles], believed: float | None = None
) -> tuple[str, ...]:
    """Why a run proves nothing: what the load generator did to it, never how the runtime answered."""
    # The judge holds lateness against its own limit, and what a dead server could not be sent against that server.
    rest = replace(result, instrument=replace(result.instrument, late_p99_ms=0.0, delivered=1.0))
    reasons = valid(rest, tolerated(gate, quantiles), believed_tokens_per_s=believed)
    nothing = f"0 of {len(result.answers)} requests completed"
    return tuple(reason for reason in reasons if reason != nothing)


def tolerated(gate: Gate, quantiles: Mapping[str, Quantiles]) -> float:
    """The smallest relative change that a critical limit lets pass in this run, by its margin or its floor."""
    critical = [limit for limit in gate.metrics if limit.critical]
    allowed = []
    for limit in critical:
        found = quantiles.get(limit.metric)
        value = float(getattr(found, limit.quantile)) if found else 0.0
        allowed.append(max(limit.margin, limit.floor / value) if value > 0 else limit.margin)
    return min(allowed)


def _with_results(
    measurement: Measurement, result: LoadResult, steps: Sequence[Step], server: Server
) -> Measurement:
    capacity = [step.kv_tokens for step in steps if step.kv_tokens]
    return measurement.model_copy(
        update={
            "quantiles": _quantiles(result),
            "graphs": count_graphs(steps),
            "memory_bytes": max([server.memory_bytes(), *(step.memory_bytes or 0 for step in steps)]),
            "kv_tokens": max(capacity) if capacity else None,
            "start_ms": {name: round(value, 1) for name, value in server.phases.items()},
            "send_lateness_p99_ms": round(result.instrument.late_p99_ms, 3),
            "runtime_version": server.version,
        }
    )


def _quantiles(result: LoadResult) -> dict[str, Quantiles]:
    found = {}
    for name in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms", "worst_gap_ms"):
        values = np.sort(samples(result)[name])
        if len(values):
            found[name] = Quantiles(
                samples=len(values),
                p50=round(quantile(values, 0.5), 4),
                p95=round(quantile(values, 0.95), 4),
                p99=round(quantile(values, 0.99), 4),
                maximum=round(float(values[-1]), 4),
            )
    return found
