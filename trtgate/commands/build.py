"""`trtgate build`: from a profile and a trace to a candidate folder."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from trtgate.commands.options import (
    CostsOption,
    FormatOption,
    JsonOption,
    ProfileArgument,
    QuietOption,
    SetOption,
    TraceOption,
)
from trtgate.console import Console

OutOption = Annotated[Path | None, typer.Option("--out", help="The candidate folder; default: build/NAME.")]
TargetOption = Annotated[
    Literal["tuned", "default", "eager"],
    typer.Option("--target", help="Buckets by cost, the runtime's own default, or no graphs."),
]
AnyPlatformOption = Annotated[
    bool, typer.Option("--any-platform", help="Take costs of another platform or model as they are.")
]
PlotOption = Annotated[
    Path | None,
    typer.Option(
        "--plot", metavar="FILE", help="Draw costs and buckets, as FILE-decode and FILE-tokens (.svg, .png)."
    ),
]
ExplainOption = Annotated[bool, typer.Option("--explain", help="Say why each bucket is there.")]


def build(
    profile: ProfileArgument,
    trace: TraceOption = None,
    out: OutOption = None,
    costs: CostsOption = None,
    any_platform: AnyPlatformOption = False,
    trace_format: FormatOption = None,
    target: TargetOption = "tuned",
    settings: SetOption = None,
    explain: ExplainOption = False,
    plot: PlotOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Turn traffic into histograms and choose the sizes to capture."""
    from trtgate.commands.show import draw_plan, show_explanation, show_plan
    from trtgate.profile import Profile
    from trtgate.releases.assemble import assemble
    from trtgate.releases.inputs import read_inputs

    console = Console(as_json, quiet)
    loaded = Profile.load(profile).with_settings(tuple(settings or ()))
    folder = out or Path("build") / loaded.name
    inputs = read_inputs(loaded, trace, costs, trace_format, any_platform=any_platform)
    candidate, plan = assemble(inputs, target, folder, tuple(settings or ()))
    console.record(plan.model_dump(mode="json"))
    console.show(show_plan(candidate, plan))
    if explain:
        console.show(show_explanation(candidate, plan))
    if plot is not None:
        for path in draw_plan(candidate, plan, plot):
            console.step(f"drawn: {path}")
