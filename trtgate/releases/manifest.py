"""A release: one manifest that names every file by digest, with the platform, model and verdict behind it."""

from typing import Literal

from trtgate.evidence.environment import ModelIdentity, Platform
from trtgate.profile import Name
from trtgate.record import Record
from trtgate.traces.base import TraceSource

MANIFEST = "release.json"


class RuntimeIdentity(Record):
    """Which runtime was judged, as asked for and as it reported itself."""

    kind: str
    version_asked: str
    version_reported: str
    args: tuple[str, ...]
    effective: dict[str, str | int | float | bool | None]


class Judgement(Record):
    """The verdict in short; the whole is in `verdict.json`."""

    result: Literal["pass"]
    reason: str
    baseline: str
    policy_sha256: str
    ledger_sha256: str
    pairs: int


class Release(Record):
    """The manifest of a sealed folder; the release is named by the sha256 of its bytes."""

    schema_version: Literal[1] = 1
    name: Name
    version: int  # counts up within a name
    created: str
    parent: str | None  # the release that was in service when this one was sealed
    plan_sha256: str
    files: dict[str, str]  # path within the folder -> sha256
    platform: Platform
    runtime: RuntimeIdentity
    model: ModelIdentity
    trace: tuple[TraceSource, ...]
    histogram_sha256: str
    verdict: Judgement
    overrides: tuple[str, ...]
    trtgate: str
    who: str

    @property
    def release_id(self) -> str:
        """The full id; people use the first twelve characters."""
        return self.digest
