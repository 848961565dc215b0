"""From a judged candidate to a sealed release; everything that does not belong together is refused."""

from dataclasses import dataclass
from pathlib import Path

from trtgate import __version__
from trtgate.errors import ExitCode, IntegrityError, TrtgateError
from trtgate.evidence.environment import identify_model
from trtgate.record import sha256_file
from trtgate.releases.candidate import (
    COSTS,
    HELD_OUT,
    HISTOGRAM,
    LEDGER,
    PLAN,
    PROFILE,
    VERDICT,
    WARMUP,
    Candidate,
)
from trtgate.releases.history import now, who
from trtgate.releases.manifest import Judgement, Release, RuntimeIdentity
from trtgate.releases.store import Store
from trtgate.verdicts.judge import Verdict, judge


@dataclass(frozen=True, slots=True)
class Sealed:
    """A release in the store; `fresh` is false where this candidate had been sealed before."""

    release_id: str
    release: Release
    fresh: bool


class NotPassedError(TrtgateError):
    """Only a candidate that passed is sealed; the exit code is that of its verdict."""

    def __init__(self, verdict: Verdict, folder: Path) -> None:
        super().__init__(
            f"the verdict of `{folder}` is {verdict.result}: {verdict.reason}",
            "only a candidate that passed is sealed",
        )
        self.exit_code = ExitCode(verdict.exit_code)


def seal(candidate: Candidate, store: Store) -> Sealed:
    """Seal the candidate, or find the release that it was sealed as.

    Refuses a candidate whose warm-up or verdict did not pass, whose files belong to different plans, or whose verdict
    is not what its ledger says.
    """
    plan = candidate.plan()
    warmup = candidate.proven()
    verdict = checked_verdict(candidate)
    if verdict.result != "pass":
        raise NotPassedError(verdict, candidate.folder)
    sources = _files(candidate, tuple(plan.files))
    files = {name: sha256_file(path) for name, path in sources.items()}
    for release_id, release in store.releases():
        if release.files == files:
            return Sealed(release_id, store.verify(release_id), fresh=False)
    profile = candidate.profile()
    release = Release(
        name=plan.name,
        version=1 + max((release.version for _id, release in store.releases()), default=0),
        created=now(),
        parent=store.live(),
        plan_sha256=plan.digest,
        files=files,
        platform=warmup.platform,
        runtime=RuntimeIdentity(
            kind=plan.runtime_kind,
            version_asked=plan.runtime_version,
            version_reported=warmup.runtime_version,
            args=profile.runtime.args,
            effective=warmup.effective,
        ),
        model=identify_model(profile.model.path),
        trace=plan.trace,
        histogram_sha256=plan.histogram_sha256,
        verdict=Judgement(
            result="pass",
            reason=verdict.reason,
            baseline=verdict.baseline,
            policy_sha256=verdict.policy_sha256,
            ledger_sha256=verdict.ledger_sha256,
            pairs=verdict.pairs_valid,
        ),
        overrides=plan.overrides,
        trtgate=__version__,
        who=who(),
    )
    return Sealed(store.seal(release, sources), release, fresh=True)


def checked_verdict(candidate: Candidate) -> Verdict:
    """The candidate's verdict, after judging its ledger anew; `IntegrityError` where the two decide differently."""
    verdict, anew = candidate.verdict(), judge(candidate.ledger())
    decisive = ("result", "candidate_sha256", "baseline_sha256", "ledger_sha256", "policy_sha256")
    if any(getattr(verdict, name) != getattr(anew, name) for name in decisive):
        raise IntegrityError(
            f"`{candidate.path(VERDICT)}` is not what `{LEDGER}` says",
            f"run `trtgate judge {candidate.folder}`",
        )
    return verdict


def _files(candidate: Candidate, config: tuple[str, ...]) -> dict[str, Path]:
    names = (PROFILE, PLAN, HISTOGRAM, HELD_OUT, COSTS, WARMUP, LEDGER, VERDICT)
    files = {name: candidate.path(name) for name in names if candidate.path(name).is_file()}
    return files | {f"config/{name}": candidate.config_folder / name for name in config}
