"""From a judged candidate to a sealed release; everything that does not belong together is refused."""

from dataclasses import dataclass
from pathlib import Path

from trtgate import __version__
from trtgate.errors import ExitCode, IntegrityError, NotEligibleError, TrtgateError
from trtgate.evidence.environment import ModelIdentity, identify_model
from trtgate.evidence.report import WarmupReport
from trtgate.plans.plan import Plan
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
from trtgate.releases.store import SHORT, Store
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


def seal(candidate: Candidate, store: Store, *, rehash: bool = False) -> Sealed:
    """Seal the candidate, or find the release that it was sealed as.

    Refuses a candidate whose warm-up or verdict did not pass, whose files belong to different plans or were changed
    after `build`, or whose verdict is not what its ledger says.
    """
    plan = candidate.plan()
    _require_unchanged(candidate, plan)
    warmup = candidate.proven()
    verdict = checked_verdict(candidate)
    if verdict.result != "pass":
        raise NotPassedError(verdict, candidate.folder)
    profile = candidate.profile()
    model = identify_model(profile.model.path, rehash=rehash)
    _require_one_origin(candidate, warmup, model)
    sources = _files(candidate, tuple(plan.files))
    files = {name: sha256_file(path) for name, path in sources.items()}
    for release_id, release in store.releases():
        if release.files == files:
            return Sealed(release_id, store.verify(release_id), fresh=False)
    release = Release(
        name=plan.name,
        version=1 + max((release.version for _id, release in store.releases()), default=len(store.damaged())),
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
        model=model,
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
    """The candidate's verdict, after judging its ledger anew; `IntegrityError` where the two differ in anything."""
    verdict, anew = candidate.verdict(), judge(candidate.ledger())
    if verdict != anew:
        raise IntegrityError(
            f"`{candidate.path(VERDICT)}` is not what `{LEDGER}` says",
            f"run `trtgate judge {candidate.folder}`",
        )
    return verdict


def require_compared(candidate: Candidate, store: Store) -> None:
    """Refuse to put in service what was not compared with the release in service now."""
    live = store.live()
    if live is None or candidate.verdict().baseline_sha256 == store.manifest(live).plan_sha256:
        return
    raise NotEligibleError(
        f"the candidate was compared with {candidate.verdict().baseline}, in service is release {live[:SHORT]}",
        f"run `trtgate canary {candidate.folder}`, or keep it sealed with `--no-promote`",
    )


def require_model(release: Release, *, rehash: bool = False) -> None:
    """Refuse a release whose model files are not those that it was judged with."""
    if not release.model.files:
        return
    here = identify_model(release.model.path, rehash=rehash)
    if here.sha256 == release.model.sha256:
        return
    known = {file.path: file.sha256 for file in release.model.files}
    found = {file.path: file.sha256 for file in here.files}
    name = next((name for name in sorted({*known, *found}) if known.get(name) != found.get(name)), "")
    raise IntegrityError(
        f"`{Path(release.model.path) / name}` is not what release {release.release_id[:SHORT]} was judged with",
        "bring its model files back, or give each model revision a folder of its own",
    )


def _require_one_origin(candidate: Candidate, warmup: WarmupReport, model: ModelIdentity) -> None:
    """Refuse evidence of different machines, model files or runtime versions."""
    ledger = candidate.ledger()
    versions = {pair.candidate.runtime_version for pair in ledger.pairs if pair.candidate is not None} - {
        None
    }
    facts = (
        ("model files", {warmup.model_sha256, ledger.head.model_sha256, model.sha256}),
        ("machine", {warmup.platform.title, ledger.head.platform}),
        ("runtime version", {warmup.runtime_version, *versions} if versions else set()),
    )
    for what, found in facts:
        if len(found - {""}) > 1:
            raise IntegrityError(
                f"warm-up, canary and this release of `{candidate.folder}` do not share one {what}",
                f"run `trtgate warmup {candidate.folder}` and `trtgate canary {candidate.folder}` again",
            )


def _require_unchanged(candidate: Candidate, plan: Plan) -> None:
    sealed = {HISTOGRAM: plan.histogram_sha256, HELD_OUT: plan.held_out_sha256, COSTS: plan.costs_sha256}
    for name, digest in sealed.items():
        path = candidate.path(name)
        if not path.is_file() or sha256_file(path) != digest:
            raise IntegrityError(
                f"`{path}` is not what `build` wrote",
                f"run `trtgate build PROFILE --trace FILE --out {candidate.folder}` again",
            )


def _files(candidate: Candidate, config: tuple[str, ...]) -> dict[str, Path]:
    names = (PROFILE, PLAN, HISTOGRAM, HELD_OUT, COSTS, WARMUP, LEDGER, VERDICT)
    files = {name: candidate.path(name) for name in names if candidate.path(name).is_file()}
    return files | {f"config/{name}": candidate.config_folder / name for name in config}
