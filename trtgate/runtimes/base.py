"""What every runtime adapter offers, and the neutral words in which it answers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from trtgate.errors import RuntimeFailedError, TrtgateError, UsageError
from trtgate.plans.config import RuntimeConfig
from trtgate.runtimes.versions import Version

Kind = Literal["decode", "tokens"]
PhaseName = Literal["process", "load", "compile", "warm-up", "capture", "ready"]
Severity = Literal["error", "warning", "note"]
Row = dict[str, Any]
LIMIT_NAMES = ("max_batch_size", "max_num_tokens", "max_seq_len")


@dataclass(frozen=True, slots=True)
class Grids:
    """Two ascending grids: requests of a decode step, and tokens of a step with context; `()` is off."""

    decode: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark about a configuration; `code` is stable, `hint` may be empty."""

    severity: Severity
    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Inspection:
    """A configuration written by hand: what it asks for, what the runtime makes of it, and all remarks."""

    requested: Grids
    effective: Grids
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration of the runtime; `None` is unknown.

    `size` counts requests (decode) or tokens of the step (tokens); `bucket` is the captured size for it.
    `predicted` says that `replayed` follows from sizes and grids and was not reported by the runtime.
    """

    iteration: int
    kind: Kind
    size: int
    bucket: int | None
    replayed: bool | None
    reason: str | None
    predicted: bool
    step_ms: float | None = None
    queued: int | None = None
    memory_bytes: int | None = None
    kv_tokens: int | None = None
    kv_used_tokens: int | None = None
    context_requests: int = 0
    generation_requests: int = 0
    paused: int | None = None

    @property
    def padding(self) -> int:
        """Requests or tokens computed for nothing; 0 where no graph was replayed."""
        return self.bucket - self.size if self.bucket is not None and self.replayed else 0


@dataclass(frozen=True, slots=True)
class Launch:
    """What is started, and where; `port` 0 takes any free one, `folder` holds the rendered files."""

    model: str
    host: str
    port: int
    config: RuntimeConfig
    folder: Path
    args: tuple[str, ...] = ()
    version: str = "1.2.0"


@dataclass(frozen=True, slots=True)
class Phase:
    """A stage of the start, as recognised from a log line; `bucket` where one is being captured."""

    name: PhaseName
    kind: Kind | None = None
    bucket: int | None = None

    def __str__(self) -> str:
        """As in a sentence: `capturing decode bucket 64`."""
        if self.name == "capture" and self.bucket is not None:
            return f"capturing {'decode' if self.kind == 'decode' else 'token'} bucket {self.bucket}"
        return _DOING[self.name]


_DOING: Mapping[PhaseName, str] = {
    "process": "starting its process",
    "load": "loading the model",
    "compile": "compiling",
    "warm-up": "warming up",
    "capture": "capturing graphs",
    "ready": "serving",
}


class PortTakenError(UsageError):
    """Somebody else listens on the port that a runtime was to use."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a runtime failed: a stable `code`, one sentence, the next step, the line that says so."""

    code: str
    message: str
    hint: str
    root: str = ""

    def error(self) -> TrtgateError:
        """The same as an error, with the line of the log; a wrong setting is the user's to change."""
        message = f"{self.message}: `{self.root}`" if self.root else self.message
        kinds: dict[str, type[TrtgateError]] = {"port-taken": PortTakenError, "bad-configuration": UsageError}
        return kinds.get(self.code, RuntimeFailedError)(message, self.hint)


class Runtime(Protocol):
    """One kind of serving runtime; native option names appear in its adapter and nowhere else."""

    kind: str
    versions: tuple[Version, Version]  # the oldest and the newest that were looked at
    statistics: Literal["endpoint", "log"]  # where iteration rows come from
    statistics_hint: str  # what to do where no rows come
    settle_s: float  # how long after the last step its row can come

    def render(self, config: RuntimeConfig, version: str) -> dict[str, str]:
        """The runtime's own files by name, to be written into one folder."""

    def command(self, launch: Launch) -> list[str]:
        """The argument list that starts it, the executable first."""

    def environment(self, launch: Launch) -> dict[str, str]:
        """Variables that it needs besides the user's own."""

    def served_model(self, launch: Launch) -> str:
        """The name under which `/v1/models` lists the model of a launch."""

    def default_grids(self, config: RuntimeConfig, version: str) -> Grids:
        """The grids it would use if nothing was said about them, under the limits of `config`."""

    def effective_grids(self, config: RuntimeConfig, version: str) -> tuple[Grids, tuple[Finding, ...]]:
        """The grids it really captures for `config`, and every difference as a finding."""

    def captured(self, lines: Iterable[str]) -> Grids:
        """The grids that a start-up log shows as captured."""

    def kv_tokens(self, lines: Iterable[str]) -> int | None:
        """The capacity of the KV cache in tokens where the start-up log names it."""

    def reported(self, info: Mapping[str, Any], lines: Iterable[str]) -> dict[str, int]:
        """Limits in effect, by the names of `RuntimeConfig`, as the server itself reports them."""

    def phase(self, line: str) -> Phase | None:
        """The stage that a line of the log announces."""

    def rows(self, lines: Iterable[str]) -> list[Row]:
        """Iteration rows found in lines of the log."""

    def steps(self, rows: Sequence[Row], grids: Grids, config: RuntimeConfig) -> list[Step]:
        """Rows of statistics as steps; `grids` is what was captured."""

    def refine(self, step: Step, row: Row) -> Step | None:
        """A step with what an iteration row of the log adds; `None` where the two do not belong together."""

    def failure(self, lines: Sequence[str], exit_code: int | None, phase: Phase | None) -> Failure:
        """Name what went wrong from the log; `exit_code` is `None` while the process lives."""

    def inspect(self, text: str, version: str, limits: Mapping[str, int] | None = None) -> Inspection:
        """Judge a configuration written by hand; `limits` are those given on the command line beside it."""

    def check(self, text: str, version: str, limits: Mapping[str, int] | None = None) -> list[Finding]:
        """The findings of `inspect` alone."""


def next_bucket(buckets: Sequence[int], size: int) -> int | None:
    """The smallest bucket that holds `size`; `None` above the largest."""
    return next((bucket for bucket in buckets if bucket >= size), None)


def option(args: Sequence[str], *names: str) -> str | None:
    """The value of a command-line option in either spelling, `--name value` or `--name=value`."""
    for index, arg in enumerate(args):
        name, sign, value = arg.partition("=")
        if name in names:
            return value if sign else next(iter(args[index + 1 : index + 2]), None)
    return None


def untested(kind: str, versions: tuple[Version, Version], version: Version) -> tuple[Finding, ...]:
    """A warning where a version lies outside the range that was looked at."""
    oldest, newest = versions
    if oldest <= version <= newest:
        return ()
    message = f"`{kind}` `{version}` is outside the tested range `{oldest}` to `{newest}`"
    return (Finding("warning", "untested-version", message, "the nearest known layout is written; check it"),)
