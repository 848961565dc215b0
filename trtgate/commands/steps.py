"""The long steps that commands share: warm-up, canary, the trial start of a release."""

import os
from pathlib import Path

from trtgate.console import Console
from trtgate.errors import InvalidMeasurementError, RuntimeFailedError, UnhealthyError, UsageError
from trtgate.evidence.arm import Arm, rendered_arm, started, target_of
from trtgate.evidence.canary import Comparison, measure_pairs
from trtgate.evidence.environment import read_platform
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
from trtgate.releases.store import SHORT, Store
from trtgate.verdicts.judge import Verdict, judge, next_step

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
TRIAL_REQUESTS = 16
TRIAL_TOKENS = 8


def run_warmup(candidate: Candidate, console: Console) -> WarmupReport:
    """Prove the candidate's buckets and write the report."""
    plan, profile = candidate.plan(), candidate.profile()
    eager = rendered_arm(profile, "eager", "eager", candidate.path("eager"))
    arm = candidate_arm(candidate, plan, profile)
    report = warm_up(Subject(arm, eager, candidate.logs_folder, read_platform(), now()), console)
    report.write(candidate.path(WARMUP))
    return report


def run_canary(
    candidate: Candidate, store_root: Path, baseline: str, again: str | None, console: Console
) -> Verdict:
    """Measure pairs until the judge can stop, and write ledger and verdict after each."""
    candidate.proven()
    plan, profile = candidate.plan(), candidate.profile()
    other = _baseline_arm(candidate, profile, Store(store_root, profile.name), baseline)
    ledger = _open_ledger(candidate, plan, profile, other, again)
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
    tell_ci(candidate, console)
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
    arm = _release_arm(store, release_id)
    vocab = arm.profile.model.vocab_size or DEFAULT_VOCAB
    asks = [
        Ask(0.0, random_prompt(4, vocab, (arm.profile.canary.seed, index)), TRIAL_TOKENS)
        for index in range(TRIAL_REQUESTS)
    ]
    logs = store.root / ".trials"
    try:
        with started(arm, logs / f"{store.name}-{release_id[:SHORT]}.log", console) as server:
            answers = run_load(target_of(server, arm.profile), asks, timeout_s=60.0, drain_s=60.0).answers
            server.raise_if_dead()
    except RuntimeFailedError as error:
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
    return Arm("baseline", title, Profile.read(folder / PROFILE), plan.config, folder / "config", plan.digest)


def _baseline_arm(candidate: Candidate, profile: Profile, store: Store, baseline: str) -> Arm:
    live = store.live() if baseline == "current" else None
    if live is not None:
        store.verify(live)
        return _release_arm(store, live)
    if baseline in {"current", "default"}:
        return rendered_arm(profile, "default", "runtime default", candidate.path("baseline"))
    if baseline == "eager":
        return rendered_arm(profile, "eager", "eager", candidate.path("baseline"))
    raise UsageError(f"unknown baseline `{baseline}`", "one of `current`, `default`, `eager`")


def _open_ledger(
    candidate: Candidate, plan: Plan, profile: Profile, baseline: Arm, again: str | None
) -> Ledger:
    """A new ledger, or the one that is there where it belongs to the same candidate, baseline and policy."""
    head = LedgerHead(
        name=profile.name,
        candidate_sha256=plan.digest,
        baseline=baseline.title,
        baseline_sha256=baseline.sha256,
        gate=profile.gate,
        looks=profile.canary.looks,
        max_send_lateness_ms=profile.canary.max_send_lateness_ms,
        length_scale=profile.traffic.length_scale,
    )
    path = candidate.path(LEDGER)
    if not path.is_file():
        return Ledger(head=head)
    found = Ledger.read(path)
    same = {"attempt": found.head.attempt, "attempt_reason": found.head.attempt_reason}
    if found.head != head.model_copy(update=same):
        return Ledger(head=head)
    if again is None:
        return found
    return Ledger(head=head.model_copy(update={"attempt": found.head.attempt + 1, "attempt_reason": again}))
