"""`trtgate canary`: pairs of runs against the baseline, and the verdict."""

from typing import Annotated

import typer

from trtgate.commands.options import (
    DEFAULT_STORE,
    BaselineOption,
    CandidateArgument,
    JsonOption,
    QuietOption,
    StoreOption,
)
from trtgate.console import Console

RestartOption = Annotated[
    str | None,
    typer.Option("--again", metavar="REASON", help="Start anew as a further attempt, with its reason."),
]


def canary(
    candidate: CandidateArgument,
    baseline: BaselineOption = "current",
    again: RestartOption = None,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare the candidate with the baseline under replayed load and judge it."""
    from trtgate.commands.show import show_verdict
    from trtgate.commands.steps import run_canary
    from trtgate.releases.candidate import open_candidate

    console = Console(as_json, quiet)
    verdict = run_canary(open_candidate(candidate), store, baseline, again, console)
    console.record(verdict.model_dump(mode="json"))
    console.show(show_verdict(verdict))
    raise typer.Exit(verdict.exit_code)
