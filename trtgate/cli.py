"""The command line: registers the commands and turns every error into one exit code."""

import os
import signal
import sys
import traceback
from types import FrameType

import typer

from trtgate import __version__
from trtgate.commands.build import build
from trtgate.commands.calibrate import calibrate
from trtgate.commands.canary import canary
from trtgate.commands.check import check
from trtgate.commands.doctor import doctor
from trtgate.commands.gate import gate
from trtgate.commands.histogram import histogram
from trtgate.commands.judge import judge
from trtgate.commands.load import load
from trtgate.commands.release import release
from trtgate.commands.report import report
from trtgate.commands.rollback import rollback
from trtgate.commands.warmup import warmup
from trtgate.console import print_error
from trtgate.errors import ExitCode, TrtgateError

app = typer.Typer(
    name="trtgate",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command()(calibrate)
app.command()(histogram)
app.command()(build)
app.command()(check)
app.command()(warmup)
app.command()(canary)
app.command()(judge)
app.add_typer(release, name="release")
app.command()(rollback)
app.command()(gate)
app.command()(load)
app.command()(report)
app.command()(doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"trtgate {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Release gate for TensorRT-LLM services: CUDA-graph sizes from real traffic, proven warm-up, judged canary."""


def main() -> None:
    """Run the command line and exit with the code of the table in `errors`."""
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _interrupt)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; returns its exit code and prints what went wrong."""
    try:
        result = app(arguments, prog_name="trtgate", standalone_mode=False)
    except TrtgateError as error:
        print_error(error.message, error.hint)
        _trace()
        return int(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        print_error("interrupted", "what was finished is kept; run the same command to go on")
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - keeps the interpreter's last flush quiet
        return int(ExitCode.ERROR)
    except Exception as error:  # noqa: BLE001 - the border: nothing may leave without a code and a sentence
        return _unexpected(error)
    return result if isinstance(result, int) else int(ExitCode.DONE)


def _unexpected(error: Exception) -> int:
    describe = getattr(error, "format_message", None)  # typer's own complaints about the command line
    if describe is not None:
        print_error(_lower(str(describe())), "see `trtgate --help` and `trtgate COMMAND --help`")
        return int(ExitCode.USAGE)
    print_error(
        f"unexpected {type(error).__name__}: {error}", "set TRTGATE_DEBUG=1 for the traceback, then report it"
    )
    _trace()
    return int(ExitCode.ERROR)


def _lower(text: str) -> str:
    return (text[:1].lower() + text[1:]).rstrip(".").replace("'", "`")


def _trace() -> None:
    if os.environ.get("TRTGATE_DEBUG"):
        traceback.print_exc()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
