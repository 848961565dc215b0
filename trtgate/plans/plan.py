"""The plan: what was chosen for one candidate, from which trace, under which costs, as one digest."""

from pathlib import Path
from typing import Literal

from trtgate.plans.config import RuntimeConfig
from trtgate.plans.grid import GridPlan
from trtgate.profile import Name
from trtgate.record import Record, sha256, write_atomic
from trtgate.traces.base import TraceSource


class Plan(Record):
    """Everything that decides how the candidate runs; its digest names the candidate in ledger and release."""

    schema_version: Literal[1] = 1
    name: Name
    trtgate: str
    runtime_kind: str
    runtime_version: str
    config: RuntimeConfig
    decode: (
        GridPlan | None
    )  # None where graphs of this kind were not chosen by cost (`--target default|eager`)
    tokens: GridPlan | None
    effective_decode: tuple[int, ...]  # what this version of the runtime makes of the configuration
    effective_tokens: tuple[int, ...]
    files: dict[str, str]  # sha256 of each rendered file in `config/`
    profile_sha256: str
    histogram_sha256: str
    held_out_sha256: str | None
    costs_sha256: str
    cost_basis: Literal["prior", "measured"]
    trace: tuple[TraceSource, ...]
    trace_sha256: str
    findings: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()

    @property
    def buckets(self) -> tuple[tuple[str, int], ...]:
        """All buckets that warm-up must prove, as (kind, size)."""
        decode = [("decode", size) for size in self.effective_decode]
        return (*decode, *(("tokens", size) for size in self.effective_tokens))


def write_files(folder: Path, files: dict[str, str]) -> dict[str, str]:
    """Write rendered files into `folder`; returns the sha256 of each."""
    digests = {}
    for name, text in sorted(files.items()):
        write_atomic(folder / name, text.encode())
        digests[name] = sha256(text.encode())
    return digests
