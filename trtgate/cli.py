"""The command line: registers the commands and turns every error into one exit code."""

import errno
import os
import signal
import sys
import traceback

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
from trtgate.console import interrupt, print_error, raise_if_interrupted
from trtgate.errors import ExitCode, TrtgateError

# What the path of an option or the rights of a folder cause; all else the system refuses is unexpected.
_OF_THE_PATH = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EEXIST,
        errno.ENAMETOOLONG,
        errno.ELOOP,
    }
)

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
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(name) is not signal.SIG_IGN:  # a shell's background job leaves Ctrl-C to others
            signal.signal(name, interrupt)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; returns its exit code and prints what went wrong."""
    try:
        result = app(arguments, prog_name="trtgate", standalone_mode=False)
        if result == ExitCode.INTERRUPTED:  # typer turns Ctrl-C into this code and says nothing
            raise KeyboardInterrupt
        raise_if_interrupted()
    except TrtgateError as error:
        print_error(error.message, error.hint)
        _trace()
        return int(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        print_error("interrupted", "what was finished is kept; run the same command again")
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - keeps the interpreter's last flush quiet
        return int(ExitCode.ERROR)
    except OSError as error:
        return _refused_by_the_system(error)
    except Exception as error:  # noqa: BLE001 - the border: nothing may leave without a code and a sentence
        return _unexpected(error)
    return result if isinstance(result, int) else int(ExitCode.DONE)


def _unexpected(error: Exception) -> int:
    describe = getattr(error, "format_message", None)  # typer's own complaints about the command line
    if describe is not None:
        context = getattr(error, "ctx", None)
        hint = f"see `{context.command_path if context else 'trtgate'} --help`"
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help
            print_error("a command is missing", hint)
        else:
            print_error(_lower(str(describe())), hint)
        return int(ExitCode.USAGE)
    print_error(
        f"unexpected {type(error).__name__}: {error}", "set TRTGATE_DEBUG=1 for the traceback, then report it"
    )
    _trace()
    return int(ExitCode.ERROR)


def _refused_by_the_system(error: OSError) -> int:
    if error.filename is None or error.errno not in _OF_THE_PATH:
        return _unexpected(error)
    what = str(error.strerror or type(error).__name__).lower()
    print_error(f"`{os.fsdecode(error.filename)}` cannot be used: {what}", "check the path and its rights")
    _trace()
    return int(ExitCode.USAGE)


def _lower(text: str) -> str:
    text = text.replace("Value error, ", "")
    return (text[:1].lower() + text[1:]).rstrip(".").replace("'", "`")


def _trace() -> None:
    if os.environ.get("TRTGATE_DEBUG"):
        traceback.print_exc()
