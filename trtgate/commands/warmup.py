"""`trtgate warmup`: start the candidate and prove every bucket."""

import typer

from trtgate.commands.options import CandidateArgument, JsonOption, QuietOption
from trtgate.console import Console
from trtgate.errors import ExitCode


def warmup(candidate: CandidateArgument, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Start the runtime, visit every bucket, prove each: captured, hit, stable, right."""
    from trtgate.commands.show import show_warmup
    from trtgate.commands.steps import run_warmup
    from trtgate.releases.candidate import open_candidate

    console = Console(as_json, quiet)
    report = run_warmup(open_candidate(candidate), console)
    console.record(report.model_dump(mode="json"))
    console.show(show_warmup(report))
    if not report.passed:
        raise typer.Exit(ExitCode.FAIL)
