"""A folder that the commands fill in turn; says which step is missing and whether what is there belongs together."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TypeVar

from filelock import FileLock, Timeout

from trtgate.errors import IntegrityError, LockedError, UsageError
from trtgate.evidence.ledger import Ledger
from trtgate.evidence.report import WarmupReport
from trtgate.plans.costs import Costs
from trtgate.plans.histogram import Histogram
from trtgate.plans.plan import Plan
from trtgate.profile import Profile
from trtgate.record import Record, sha256_file
from trtgate.verdicts.judge import Verdict

T = TypeVar("T", bound=Record)
PROFILE, PLAN, HISTOGRAM, HELD_OUT, COSTS = (
    "profile.json",
    "plan.json",
    "histogram.json",
    "held-out.json",
    "costs.json",
)
WARMUP, LEDGER, VERDICT = "warmup.json", "ledger.jsonl", "verdict.json"
TRACE = "trace.parquet"
LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One candidate folder."""

    folder: Path

    @property
    def config_folder(self) -> Path:
        """Where the runtime's own configuration files are."""
        return self.folder / "config"

    @property
    def logs_folder(self) -> Path:
        """Where the runtime's output and statistics are kept whole."""
        return self.folder / "logs"

    def path(self, name: str) -> Path:
        """The path of one file."""
        return self.folder / name

    def plan(self) -> Plan:
        """The plan, after checking that the configuration files are still those it was made with."""
        plan = self._read(Plan, PLAN, "build")
        for name, digest in plan.files.items():
            path = self.config_folder / name
            if not path.is_file() or sha256_file(path) != digest:
                raise IntegrityError(f"`{path}` is not what `build` wrote", _again("build", self.folder))
        self.profile()  # says what is missing or damaged
        if sha256_file(self.path(PROFILE)) != plan.profile_sha256:
            raise IntegrityError(
                f"`{self.path(PROFILE)}` was changed after `build`", _again("build", self.folder)
            )
        return plan

    def profile(self) -> Profile:
        """The profile as it was when the candidate was built."""
        return self._read(Profile, PROFILE, "build")

    def histogram(self) -> Histogram:
        """The histogram that the grids were chosen from."""
        return self._read(Histogram, HISTOGRAM, "build")

    def costs(self) -> Costs:
        """The costs that the grids were chosen by."""
        return self._read(Costs, COSTS, "build")

    def warmup(self) -> WarmupReport:
        """The warm-up report of exactly this plan; refuses one of another plan."""
        report = self._read(WarmupReport, WARMUP, "warmup")
        if report.plan_sha256 != self.plan().digest:
            raise UsageError(
                f"`{self.path(WARMUP)}` belongs to an earlier plan", _again("warmup", self.folder)
            )
        return report

    def proven(self) -> WarmupReport:
        """The warm-up report, refused unless every required bucket was valid."""
        report = self.warmup()
        if not report.passed:
            raise UsageError(
                f"the warm-up of `{self.folder}` failed: {report.reason}", _again("warmup", self.folder)
            )
        valid = {(proof.kind, proof.bucket) for proof in report.buckets if proof.valid}
        unproven = [f"{kind} {bucket}" for kind, bucket in self.plan().buckets if (kind, bucket) not in valid]
        if unproven:
            raise UsageError(
                f"`{self.path(WARMUP)}` does not prove {', '.join(unproven)}", _again("warmup", self.folder)
            )
        return report

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second warm-up or canary of this folder away: two would disturb each other and mix their files."""
        try:
            with FileLock(self.path(LOCK), timeout=0):
                yield
        except Timeout:
            raise LockedError(
                f"`{self.folder}` is in use by another warm-up or canary",
                "wait until it has ended, then try again",
            ) from None

    def ledger(self) -> Ledger:
        """The ledger of exactly this plan."""
        if not self.path(LEDGER).is_file():
            raise _missing(LEDGER, self.folder, "canary")
        ledger = Ledger.read(self.path(LEDGER))
        if ledger.head.candidate_sha256 != self.plan().digest:
            raise UsageError(
                f"`{self.path(LEDGER)}` belongs to an earlier plan", _again("canary", self.folder)
            )
        return ledger

    def verdict(self) -> Verdict:
        """The verdict, as it was written."""
        return self._read(Verdict, VERDICT, "canary")

    def _read(self, cls: type[T], name: str, command: str) -> T:
        if not self.path(name).is_file():
            raise _missing(name, self.folder, command)
        return cls.read(self.path(name))


def open_candidate(folder: Path) -> Candidate:
    """A candidate folder; refuses a path that is none."""
    if not folder.is_dir():
        raise UsageError(
            f"`{folder}` is no candidate folder", "make one with `trtgate build PROFILE --trace FILE`"
        )
    return Candidate(folder)


def _missing(name: str, folder: Path, command: str) -> UsageError:
    return UsageError(f"`{name}` is missing from `{folder}`", _run(command, folder))


def _run(command: str, folder: Path) -> str:
    quoted = quote(str(folder))  # so that the hint can be typed as it stands
    target = f"PROFILE --trace FILE --out {quoted}" if command == "build" else quoted
    return f"run `trtgate {command} {target}`"


def _again(command: str, folder: Path) -> str:
    return f"{_run(command, folder)} again"
