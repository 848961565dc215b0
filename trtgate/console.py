"""Everything that is printed: results to stdout, progress, `error:` and `hint:` lines to stderr."""

import json
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

WIDTH = 80
_interrupted = threading.Event()


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """The handler of SIGINT, SIGTERM and SIGHUP: unwinds the stack, and remembers that it should.

    An exception that a handler raises is lost where the interpreter happens to run a callback from C; the next line
    that is printed then raises it again.
    """
    _interrupted.set()
    raise KeyboardInterrupt


def raise_if_interrupted() -> None:
    """Raise an interrupt that was lost; once, and only in the main thread."""
    if _interrupted.is_set() and threading.current_thread() is threading.main_thread():
        _interrupted.clear()
        raise KeyboardInterrupt


@dataclass(frozen=True, slots=True)
class Console:
    """How a command speaks; chosen once from `--json` and `--quiet`."""

    as_json: bool = False
    quiet: bool = False

    def show(self, text: str) -> None:
        """Print a result for people; silent where JSON was asked for."""
        raise_if_interrupted()
        if not self.as_json:
            print(text, flush=True)

    def record(self, value: Any) -> None:  # noqa: ANN401 - anything JSON can hold
        """Print a result for programs; silent unless JSON was asked for."""
        if self.as_json:
            print(json.dumps(value, indent=2, sort_keys=True), flush=True)

    def step(self, text: str) -> None:
        """Say on stderr what is being done now."""
        raise_if_interrupted()
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def progress(self, text: str) -> None:
        """Say how far something got: rewritten in place on a terminal, left out elsewhere."""
        raise_if_interrupted()
        if self.quiet or not sys.stderr.isatty():
            return
        print(f"\r\x1b[2K{text[: WIDTH - 1]}", end="", file=sys.stderr, flush=True)

    def progress_done(self) -> None:
        """Clear the line that `progress` wrote."""
        if not self.quiet and sys.stderr.isatty():
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def print_error(message: str, hint: str = "") -> None:
    """One `error:` line and, where there is a next step, one `hint:` line."""
    print(f"{_paint('error:', '31;1')} {_one_line(message)}", file=sys.stderr)
    if hint:
        print(f"{_paint('hint:', '36;1')} {_one_line(hint)}", file=sys.stderr)
    sys.stderr.flush()


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> str:
    """A plain table: the first `left` columns aligned left, the others right, two blanks between."""
    cells = [list(headers), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = []
    for row in cells:
        parts = [
            text.ljust(width) if column < left else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def percent(fraction: float | None, digits: int = 1) -> str:
    """A fraction as printed, `12.5 %`; a dash where it is unknown."""
    return "-" if fraction is None else f"{100 * fraction:.{digits}f} %"


def size_list(sizes: Sequence[int], width: int = 60) -> str:
    """Sizes as printed, `1 2 4 8`, shortened in the middle to `width`; `none` where there are none."""
    text = " ".join(map(str, sizes)) or "none"
    if len(text) <= width:
        return text
    tail = f" ... {sizes[-1]} ({len(sizes)} sizes)"
    return text[: width - len(tail)].rsplit(" ", 1)[0] + tail


def mebibytes(count: float | None) -> str:
    """Bytes as printed, `12.3 MiB`; a dash where unknown."""
    return "-" if count is None else f"{count / 2**20:.1f} MiB"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _paint(text: str, code: str) -> str:
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not sys.stderr.isatty()
    return text if plain else f"\x1b[{code}m{text}\x1b[0m"
