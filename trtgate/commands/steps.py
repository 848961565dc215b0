"""The long steps that commands share: warm-up, canary, the trial start of a release."""

import os
from dataclasses import replace
from pathlib import Path

from trtgate.console import Console
from trtgate.errors import (
    IntegrityError,
    InvalidMeasurementError,
    RuntimeFailedError,
    UnhealthyError,
    UsageError,
)
from trtgate.evidence.arm import Arm, rendered_arm, started, target_of
from trtgate.evidence.canary import Comparison, measure_pairs
from trtgate.evidence.environment import identify_model, read_platform
from trtgate.evidence.ledger import Ledger, LedgerHead
from trtgate.evidence.report import WarmupReport
from trtgate.evidence.staircase import DEFAULT_VOCAB, random_prompt
from trtgate.evidence.warmup import Subject, warm_up
from trtgate.loads.base import Ask
from trtgate.loads.run import run_load
from trtgate.loads.selfcheck import selfcheck
from trtgate.plans.plan import Plan
from trtgate.profile import Profile
from trtgate.releases.assemble import read_replay
from trtgate.releases.candidate import LEDGER, PLAN, PROFILE, VERDICT, WARMUP, Candidate
from trtgate.releases.history import now
from trtgate.releases.report import append_summary, read_report, report_markdown
from trtgate.releases.seal import require_model
from trtgate.releases.store import SHORT, Store
from trtgate.verdicts.judge import Verdict, judge, next_step

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
TRIAL_REQUESTS = 16
TRIAL_TOKENS = 8


def run_warmup(candidate: Candidate, console: Console) -> WarmupReport:
    """Prove the candidate's buckets and write the report; an earlier one ends with the start of this."""
    plan, profile = candidate.plan(), candidate.profile()
    with candidate.locked():
        candidate.path(WARMUP).unlink(missing_ok=True)
        eager = rendered_arm(profile, "eager", "eager", candidate.path("eager"))
        arm = candidate_arm(candidate, plan, profile)
        model = identify_model(profile.model.path).sha256
        subject = Subject(arm, eager, candidate.logs_folder, read_platform(), now(), model)
        report = warm_up(subject, console)
        report.write(candidate.path(WARMUP))
    return report


def run_canary(
    candidate: Candidate, store_root: Path, baseline: str, again: str | None, console: Console
) -> Verdict:
    """Measure pairs until the judge can stop; the ledger is written after each, the verdict at the end."""
    with candidate.locked():
        verdict = _canary(candidate, store_root, baseline, again, console)
    tell_ci(candidate, console)
    return verdict


def _canary(
    candidate: Candidate, store_root: Path, baseline: str, again: str | None, console: Console
) -> Verdict:
    report = candidate.proven()
    plan, profile = candidate.plan(), candidate.profile()
    model = identify_model(profile.model.path).sha256
    if report.model_sha256 not in {"", model}:
        raise IntegrityError(
            f"the files of `{profile.model.path}` were changed after the warm-up",
            f"run `trtgate warmup {candidate.folder}` again",
        )
    other = _baseline_arm(candidate, profile, Store(store_root, profile.name), baseline)
    head = LedgerHead(
        name=profile.name,
        candidate_sha256=plan.digest,
        baseline=other.title,
        baseline_sha256=other.sha256,
        gate=profile.gate,
        looks=profile.canary.looks,
        max_send_lateness_ms=profile.canary.max_send_lateness_ms,
        length_scale=profile.traffic.length_scale,
        model_sha256=model,
        platform=read_platform().title,
    )
    ledger = open_ledger(candidate, head, again)
    comparison = Comparison(
        candidate=candidate_arm(candidate, plan, profile),
        baseline=other,
        trace=read_replay(candidate, plan),
        logs=candidate.logs_folder,
        ledger_path=candidate.path(LEDGER),
        believed_tokens_per_s=_believed(profile, ledger, console),
    )
    candidate.path(VERDICT).unlink(missing_ok=True)

    def enough(so_far: Ledger) -> bool:
        step = next_step(so_far)
        if so_far.pairs:
            console.step(f"after {len(so_far.pairs)} pairs: {step.reason}")
        return step.action == "stop"

    ledger = measure_pairs(comparison, ledger, enough, console)
    verdict = judge(ledger)
    verdict.write(candidate.path(VERDICT))
    return verdict


def tell_ci(candidate: Candidate, console: Console) -> None:
    """Append the report to the step summary of GitHub Actions, where this runs in one."""
    path = os.environ.get(STEP_SUMMARY)
    if not path:
        return
    try:
        append_summary(Path(path), report_markdown(read_report(candidate.folder)))
    except OSError as error:
        console.step(f"`{path}` of `{STEP_SUMMARY}` cannot be written: {error.strerror}")


def _believed(profile: Profile, ledger: Ledger, console: Console) -> float | None:
    """Up to how many tokens/s the load generator is trusted on this host; None where that was not asked."""
    if not profile.canary.selfcheck or next_step(ledger).action == "stop":
        return None
    floors = [limit.floor for limit in profile.gate.metrics if limit.critical]
    check = selfcheck(limit_ms=max(min(floors), 1.0))
    console.step(
        f"self-check: the load generator is believed up to {check.believed_tokens_per_s:.0f} tokens/s"
    )
    if check.believed_tokens_per_s <= 0:
        raise InvalidMeasurementError(
            f"the load generator is off by more than {check.limit_ms:g} ms on this host at any rate",
            "give it a quiet core, or set `canary.selfcheck` to false",
        )
    return check.believed_tokens_per_s


def try_release(store: Store, release_id: str, console: Console) -> None:
    """Start a sealed release from its own files and let it answer; `UnhealthyError` leaves all as it was."""
    folder = store.release_folder(release_id)
    arm = on_any_port(_release_arm(store, release_id))
    vocab = arm.profile.model.vocab_size or DEFAULT_VOCAB
    asks = [
        Ask(0.0, random_prompt(4, vocab, (arm.profile.canary.seed, index)), TRIAL_TOKENS)
        for index in range(TRIAL_REQUESTS)
    ]
    logs = store.root / ".trials"
    try:
        require_model(store.manifest(release_id))
        with started(arm, logs / f"{store.name}-{release_id[:SHORT]}.log", console) as server:
            answers = run_load(target_of(server, arm.profile), asks, timeout_s=60.0, drain_s=60.0).answers
            server.raise_if_dead()
    except (RuntimeFailedError, InvalidMeasurementError, UsageError) as error:
        raise UnhealthyError(
            f"release {release_id[:SHORT]} failed its trial: {error.message}", _kept(folder)
        ) from error
    failed = [answer for answer in answers if not answer.ok]
    if failed:
        kinds = ", ".join(sorted({answer.error or "" for answer in failed}))
        raise UnhealthyError(
            f"release {release_id[:SHORT]} failed {len(failed)} of {len(asks)} trial requests: {kinds}",
            _kept(folder),
        )


def on_any_port(arm: Arm) -> Arm:
    """The arm on a free port, since what is in service may hold its own."""
    runtime = arm.profile.runtime.model_copy(update={"port": 0})
    return replace(arm, profile=arm.profile.model_copy(update={"runtime": runtime}))


def _kept(folder: Path) -> str:
    return (
        f"what was in service stays; look into `{folder}` and the log in `{folder.parent.parent / '.trials'}`"
    )


def candidate_arm(candidate: Candidate, plan: Plan, profile: Profile) -> Arm:
    """The arm of a built candidate."""
    return Arm("candidate", "candidate", profile, plan.config, candidate.config_folder, plan.digest)


def _release_arm(store: Store, release_id: str) -> Arm:
    folder = store.release_folder(release_id)
    plan = Plan.read(folder / PLAN)
    title = f"release {release_id[:SHORT]}"
    profile, version = Profile.read(folder / PROFILE), store.manifest(release_id).runtime.version_reported
    return Arm("baseline", title, profile, plan.config, folder / "config", plan.digest, version)


def _baseline_arm(candidate: Candidate, profile: Profile, store: Store, baseline: str) -> Arm:
    live = store.live() if baseline == "current" else None
    if live is not None:
        require_model(store.verify(live))
        return _release_arm(store, live)
    if baseline in {"current", "default"}:
        return rendered_arm(profile, "default", "runtime default", candidate.path("baseline"))
    if baseline == "eager":
        return rendered_arm(profile, "eager", "eager", candidate.path("baseline"))
    raise UsageError(f"unknown baseline `{baseline}`", "one of `current`, `default`, `eager`")


def open_ledger(candidate: Candidate, head: LedgerHead, again: str | None) -> Ledger:
    """The ledger that is there where its head is the same, else a new one.

    A new one for the same candidate is a further attempt; the one before is kept beside it as `ledger-N.jsonl`.
    """
    path = candidate.path(LEDGER)
    if not path.is_file():
        return Ledger(head=head)
    found = Ledger.read(path)
    before = found.head
    same = {"attempt": before.attempt, "attempt_reason": before.attempt_reason}
    if before == head.model_copy(update=same) and again is None:
        return found
    if before.candidate_sha256 != head.candidate_sha256:
        return Ledger(head=head)
    if not found.pairs and again is None:
        return Ledger(head=head.model_copy(update=same))
    found.write(candidate.path(f"ledger-{before.attempt}.jsonl"))
    changed = [name for name in type(head).model_fields if getattr(before, name) != getattr(head, name)]
    named = ", ".join(name for name in changed if name not in same)
    reason = again or f"{named} changed, the baseline before was {before.baseline}"
    return Ledger(head=head.model_copy(update={"attempt": before.attempt + 1, "attempt_reason": reason}))
