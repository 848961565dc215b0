"""`trtgate judge`: the verdict anew from the ledger, launching nothing."""

import typer

from trtgate.commands.options import CandidateArgument, JsonOption, QuietOption
from trtgate.console import Console


def judge(candidate: CandidateArgument, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Recompute the verdict from the ledger; launches nothing."""
    from trtgate.commands.show import show_verdict
    from trtgate.releases.candidate import VERDICT, open_candidate
    from trtgate.verdicts.judge import judge as judge_ledger

    console = Console(as_json, quiet)
    opened = open_candidate(candidate)
    verdict = judge_ledger(opened.ledger())
    verdict.write(opened.path(VERDICT))
    console.record(verdict.model_dump(mode="json"))
    console.show(show_verdict(verdict))
    raise typer.Exit(verdict.exit_code)
