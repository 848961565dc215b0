"""Options that several commands share, each spelt once."""

from pathlib import Path
from typing import Annotated

import typer

CandidateArgument = Annotated[Path, typer.Argument(help="The candidate folder that `build` wrote.")]
ProfileArgument = Annotated[Path, typer.Argument(help="The deployment, a YAML file.")]
TraceOption = Annotated[
    Path | None, typer.Option("--trace", help="Production traffic; default: the profile's.")
]
FormatOption = Annotated[str | None, typer.Option("--format", help="Format of the trace; default: detected.")]
CostsOption = Annotated[Path | None, typer.Option("--costs", help="Measured costs; default: a stated prior.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting of the profile.")
]
StoreOption = Annotated[
    Path, typer.Option("--store", envvar="TRTGATE_STORE", help="Folder that holds the sealed releases.")
]
BaselineOption = Annotated[
    str,
    typer.Option(
        "--baseline",
        help="`current` release (default: the runtime's default without one), `default`, `eager`.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the record as JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print results only.")]

DEFAULT_STORE = Path("releases")
