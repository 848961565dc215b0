"""`trtgate report`: a candidate or a release as Markdown, JUnit XML or text."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from trtgate.commands.options import JsonOption, QuietOption
from trtgate.console import Console

ReportFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="A candidate, or a sealed release (`releases/NAME/ID`).")
]
ReportFormat = Annotated[
    Literal["markdown", "junit", "text"], typer.Option("--format", help="What to make of it.")
]
ReportOut = Annotated[Path | None, typer.Option("--out", help="The file to write; default: print it.")]
GithubOption = Annotated[
    bool, typer.Option("--github", help="Also print annotations for GitHub Actions, on stderr.")
]


def report(
    folder: ReportFolder,
    kind: ReportFormat = "markdown",
    out: ReportOut = None,
    github: GithubOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show plan, warm-up, platform and verdict of a candidate or a release."""
    from trtgate.record import write_atomic
    from trtgate.releases import report as reports
    from trtgate.verdicts.render import annotations

    console = Console(as_json, quiet)
    found = reports.read_report(folder)
    render = {
        "markdown": reports.report_markdown,
        "junit": reports.report_junit,
        "text": reports.report_text,
    }[kind]
    parts = {"plan": found.plan, "warmup": found.warmup, "verdict": found.verdict, "release": found.release}
    console.record({name: part and part.model_dump(mode="json") for name, part in parts.items()})
    if out is not None:
        write_atomic(out, render(found).encode())
        console.step(f"wrote `{out}`")
    else:
        console.show(render(found).rstrip())
    if github and found.verdict is not None:
        for line in annotations(found.verdict):
            typer.echo(line, err=True)
