"""`trtgate gate`: build, warm-up, canary and release in one go, as a CI job calls it."""

from pathlib import Path
from typing import Annotated

import typer

from trtgate.commands.build import AnyPlatformOption, OutOption
from trtgate.commands.options import (
    DEFAULT_STORE,
    BaselineOption,
    CostsOption,
    FormatOption,
    JsonOption,
    ProfileArgument,
    QuietOption,
    SetOption,
    StoreOption,
    TraceOption,
)
from trtgate.console import Console
from trtgate.errors import ExitCode

NoPromoteOption = Annotated[bool, typer.Option("--no-promote", help="Seal, but leave in service what is.")]


def gate(
    profile: ProfileArgument,
    trace: TraceOption = None,
    out: OutOption = None,
    costs: CostsOption = None,
    any_platform: AnyPlatformOption = False,
    trace_format: FormatOption = None,
    settings: SetOption = None,
    baseline: BaselineOption = "current",
    store: StoreOption = DEFAULT_STORE,
    no_promote: NoPromoteOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Build, warm up, judge and release in one go; only a pass is released."""
    from trtgate.commands.release import seal_and_promote
    from trtgate.commands.show import show_plan, show_verdict, show_warmup
    from trtgate.commands.steps import run_canary, run_warmup, tell_ci
    from trtgate.profile import Profile
    from trtgate.releases.assemble import assemble
    from trtgate.releases.inputs import read_inputs

    console = Console(as_json, quiet)
    chosen = tuple(settings or ())
    loaded = Profile.load(profile).with_settings(chosen)
    inputs = read_inputs(loaded, trace, costs, trace_format, any_platform=any_platform)
    candidate, plan = assemble(inputs, "tuned", out or Path("build") / loaded.name, chosen)
    console.show(show_plan(candidate, plan) + "\n")
    report = run_warmup(candidate, console)
    console.show(show_warmup(report) + "\n")
    if not report.passed:
        tell_ci(candidate, console)
        console.record({"result": "fail", "reason": report.reason, "candidate": str(candidate.folder)})
        raise typer.Exit(ExitCode.FAIL)
    verdict = run_canary(candidate, store, baseline, None, console)
    console.show(show_verdict(verdict) + "\n")
    if verdict.result != "pass":
        console.record(verdict.model_dump(mode="json"))
        raise typer.Exit(verdict.exit_code)
    seal_and_promote(candidate, store, promote=not no_promote, console=console)
