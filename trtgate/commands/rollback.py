"""`trtgate rollback`: go back to an earlier release, after verifying it and trying it out."""

from typing import Annotated

import typer

from trtgate.commands.options import DEFAULT_STORE, JsonOption, QuietOption, StoreOption
from trtgate.console import Console

NameArgument = Annotated[str, typer.Argument(help="The name of the deployment, as in its profile.")]
ToOption = Annotated[str | None, typer.Option("--to", metavar="ID", help="First characters of a release.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Kept in the history.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Choose and verify; change nothing.")]


def rollback(
    name: NameArgument,
    to: ToOption = None,
    reason: ReasonOption = "not given",
    dry_run: DryRunOption = False,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Go back to the release before, or to one by its id."""
    from trtgate.commands.steps import try_release
    from trtgate.evidence.environment import read_platform
    from trtgate.releases.rollback import find_way_back
    from trtgate.releases.store import SHORT, open_store

    console = Console(as_json, quiet)
    opened = open_store(store, name)
    with opened.locked():
        resumed = opened.resume()
        if resumed:
            console.step(f"resumed: {resumed}")
        way = find_way_back(opened, read_platform(), to)
        for warning in way.warnings:
            console.step(f"warning: {warning}")
        if not way.already_live and not dry_run:
            try_release(opened, way.target, console)
            opened.switch("rollback", way.target, reason)
    state = "would be" if dry_run else "is already" if way.already_live else "is now"
    console.record({"live": way.target, "replaced": way.live, "changed": not (dry_run or way.already_live)})
    console.show(
        f"release {way.target[:SHORT]} of `{name}` {state} in service (version {way.release.version})"
    )
