"""`trtgate release`: seal and promote a candidate; list, show and verify what is sealed."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trtgate.commands.options import DEFAULT_STORE, CandidateArgument, JsonOption, QuietOption, StoreOption
from trtgate.console import Console, table


class SealByDefault(TyperGroup):
    """A group that takes `release CANDIDATE` as `release seal CANDIDATE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer keeps its context's type to itself
        """Put `seal` first where no other word of the group is."""
        if args and args[0] != "--help" and args[0] not in self.commands:
            args = ["seal", *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


release = typer.Typer(
    cls=SealByDefault,
    help="Seal and promote a candidate that passed; list, show and verify releases.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
NameArgument = Annotated[str, typer.Argument(help="The name of the deployment, as in its profile.")]
IdArgument = Annotated[
    str | None, typer.Argument(metavar="ID", help="First characters; default: in service.")
]
RehashOption = Annotated[
    bool, typer.Option("--rehash", help="Read every model file again instead of trusting remembered digests.")
]
NoPromoteOption = Annotated[bool, typer.Option("--no-promote", help="Seal, but leave in service what is.")]


@release.command()
def seal(
    candidate: CandidateArgument,
    no_promote: NoPromoteOption = False,
    rehash: RehashOption = False,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Seal a candidate that passed and put it in service (the default word)."""
    from trtgate.releases.candidate import open_candidate

    console = Console(as_json, quiet)
    seal_and_promote(open_candidate(candidate), store, promote=not no_promote, rehash=rehash, console=console)


@release.command("list")
def list_releases(
    name: NameArgument, store: StoreOption = DEFAULT_STORE, as_json: JsonOption = False
) -> None:
    """List the releases of a name and mark the one in service."""
    from trtgate.releases.history import rolled_back_from
    from trtgate.releases.store import SHORT, open_store

    console = Console(as_json)
    opened = open_store(store, name)
    live, marked = opened.live(), rolled_back_from(opened.history())
    found = opened.releases()
    rows: list[tuple[object, ...]] = [
        (
            item.version,
            release_id[:SHORT],
            item.created,
            "in service" if release_id == live else "gone back from" if release_id in marked else "",
        )
        for release_id, item in found
    ]
    for short in opened.damaged():
        in_service = live is not None and live.startswith(short)
        rows.append(("?", short, "?", "in service, DAMAGED" if in_service else "DAMAGED"))
    console.record(
        [
            {"id": release_id, "live": release_id == live, **item.model_dump(mode="json")}
            for release_id, item in found
        ]
    )
    console.show(table(("version", "release", "sealed", "state"), rows, left=4))


@release.command()
def show(
    name: NameArgument,
    release_id: IdArgument = None,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Show what one release holds."""
    from trtgate.commands.show import show_release
    from trtgate.releases.store import open_store

    console = Console(as_json)
    opened = open_store(store, name)
    full = _chosen(opened, release_id)
    found = opened.manifest(full)
    console.record({"id": full, **found.model_dump(mode="json")})
    console.show(show_release(full, found, opened.release_folder(full)))


@release.command()
def verify(
    name: NameArgument,
    release_id: IdArgument = None,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Recompute every digest of a release."""
    from trtgate.releases.store import SHORT, open_store

    console = Console(as_json)
    opened = open_store(store, name)
    full = _chosen(opened, release_id)
    found = opened.verify(full)
    opened.history()
    console.record({"id": full, "files": len(found.files), "whole": True})
    console.show(f"release {full[:SHORT]} of `{name}` is whole")
    console.show(f"{len(found.files)} files have the digests that were sealed")


def seal_and_promote(
    candidate: Any,  # noqa: ANN401 - a `Candidate`, whose import would slow `--help`
    root: Path,
    *,
    promote: bool,
    console: Console,
    rehash: bool = False,
) -> None:
    """Seal under the lock, put in service, say where it is."""
    from trtgate.commands.show import show_release
    from trtgate.releases.seal import require_compared
    from trtgate.releases.seal import seal as seal_candidate
    from trtgate.releases.store import SHORT, Store

    name = candidate.plan().name
    store = Store(root, name)
    with store.locked():
        store.resume()
        sealed = seal_candidate(candidate, store, rehash=rehash)
        live = store.live()
        if promote and live != sealed.release_id:
            require_compared(candidate, store)
            store.switch("promote", sealed.release_id, sealed.release.verdict.reason)
        in_service = store.live() == sealed.release_id
    folder = store.release_folder(sealed.release_id)
    console.record(
        {"id": sealed.release_id, "folder": str(folder), "promoted": in_service, "fresh": sealed.fresh}
    )
    console.show(show_release(sealed.release_id, sealed.release, folder))
    state = "in service" if in_service else "sealed, not promoted"
    console.show(f"release {sealed.release_id[:SHORT]} of `{name}` is {state}")


def _chosen(store: Any, prefix: str | None) -> str:  # noqa: ANN401
    from trtgate.errors import NotEligibleError

    found = store.resolve(prefix) if prefix else store.live()
    if found is None:
        raise NotEligibleError(f"no release of `{store.name}` is in service", "name one by its id")
    return str(found)
