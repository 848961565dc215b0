"""From a profile and a trace to a candidate folder: plan, histograms and the runtime's own files."""

import io
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from trtgate import __version__
from trtgate.errors import IntegrityError, TraceError, UsageError
from trtgate.plans.config import Target, config_for
from trtgate.plans.plan import Plan, write_files
from trtgate.profile import Profile
from trtgate.record import write_atomic
from trtgate.releases.candidate import COSTS, HELD_OUT, HISTOGRAM, PLAN, PROFILE, TRACE, Candidate
from trtgate.releases.choice import choose_grids
from trtgate.releases.inputs import Inputs, falling_behind
from trtgate.runtimes import runtime_for
from trtgate.runtimes.base import Finding
from trtgate.runtimes.installed import validate_installed
from trtgate.traces.base import Trace

MAX_REPLAY_REQUESTS = 1_000_000


def assemble(
    inputs: Inputs, target: Target, folder: Path, overrides: tuple[str, ...]
) -> tuple[Candidate, Plan]:
    """Write the candidate folder; `plan.json` comes last, so that a folder with a plan is complete."""
    profile = inputs.profile
    decode, tokens = choose_grids(inputs) if target == "tuned" else (None, None)
    config = config_for(profile, target, decode.buckets if decode else (), tokens.buckets if tokens else ())
    runtime = runtime_for(profile.runtime.kind)
    files = runtime.render(config, profile.runtime.version)
    effective, findings = runtime.effective_grids(config, profile.runtime.version)
    checked = [found for text in files.values() for found in _validated(profile, text)]
    behind = falling_behind(inputs)
    candidate = _prepare(folder)
    replay = _replay_trace(inputs)
    _write_trace(candidate.path(TRACE), replay)
    profile.write(candidate.path(PROFILE))
    inputs.fit.write(candidate.path(HISTOGRAM))
    inputs.later.write(candidate.path(HELD_OUT))
    inputs.costs.write(candidate.path(COSTS))
    plan = Plan(
        name=profile.name,
        trtgate=__version__,
        runtime_kind=profile.runtime.kind,
        runtime_version=profile.runtime.version,
        config=config,
        decode=decode,
        tokens=tokens,
        effective_decode=effective.decode,
        effective_tokens=effective.tokens,
        files=write_files(candidate.config_folder, files),
        profile_sha256=profile.digest,
        histogram_sha256=inputs.fit.digest,
        held_out_sha256=inputs.later.digest,
        costs_sha256=inputs.costs.digest,
        cost_basis=inputs.costs.decode_replay.basis,
        trace=inputs.trace.sources,
        trace_sha256=replay.digest,
        findings=(
            *([behind] if behind else []),
            *(f"{found.severity}: {found.message}" for found in (*findings, *checked)),
        ),
        overrides=overrides,
    )
    plan.write(candidate.path(PLAN))
    return candidate, plan


def _validated(profile: Profile, text: str) -> list[Finding]:
    """What the runtime's own classes say of the file, where its package is installed here; an error is refused."""
    found = validate_installed(profile.runtime.kind, text, profile.runtime.version)
    for finding in found:
        if finding.severity == "error":
            raise UsageError(
                f"{profile.runtime.kind} refuses the configuration: {finding.message}", finding.hint
            )
    return list(found)


def read_replay(candidate: Candidate, plan: Plan) -> Trace:
    """The traffic of one replica as `build` wrote it; refuses one that was changed."""
    path = candidate.path(TRACE)
    if not path.is_file():
        raise UsageError(
            f"`{path}` is missing", f"run `trtgate build PROFILE --trace FILE --out {candidate.folder}`"
        )
    again = f"run `trtgate build PROFILE --trace FILE --out {candidate.folder}` again"
    try:
        columns = pq.read_table(path)
        trace = Trace(
            arrival_s=columns["arrival_s"].to_numpy(),
            prompt_tokens=columns["prompt_tokens"].to_numpy(),
            output_tokens=columns["output_tokens"].to_numpy(),
            sources=plan.trace,
        )
    except (pa.ArrowException, KeyError, OSError, TraceError) as error:
        raise IntegrityError(f"`{path}` is not what `build` wrote", again) from error
    if trace.digest != plan.trace_sha256:
        raise IntegrityError(f"`{path}` is not what `build` wrote", again)
    return trace


def _replay_trace(inputs: Inputs) -> Trace:
    later = inputs.trace.split(inputs.profile.traffic.fit_fraction)[1]
    share = slice(None, None, inputs.profile.traffic.replicas)
    rows = slice(0, MAX_REPLAY_REQUESTS)
    one = Trace(
        arrival_s=later.arrival_s[share][rows],
        prompt_tokens=later.prompt_tokens[share][rows],
        output_tokens=later.output_tokens[share][rows],
        sources=later.sources,
    )
    return one.sped_up(inputs.profile.traffic.speed_up)


def _write_trace(path: Path, trace: Trace) -> None:
    table = pa.table(
        {
            "arrival_s": trace.arrival_s,
            "prompt_tokens": trace.prompt_tokens,
            "output_tokens": trace.output_tokens,
        }
    )
    written = io.BytesIO()
    pq.write_table(table, written)
    write_atomic(path, written.getvalue())


def _prepare(folder: Path) -> Candidate:
    candidate = Candidate(folder)
    if folder.exists():
        if not folder.is_dir():
            raise UsageError(f"`{folder}` is a file", "give another `--out`")
        if (
            any(folder.iterdir())
            and not candidate.path(PLAN).is_file()
            and not candidate.path(PROFILE).is_file()
        ):
            raise UsageError(f"`{folder}` holds something else than a candidate", "give another `--out`")
        candidate.path(PLAN).unlink(missing_ok=True)
        shutil.rmtree(candidate.config_folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    return candidate
