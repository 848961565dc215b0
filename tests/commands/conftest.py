from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.leftovers import leaves_nothing
from trtgate.cli import run


@dataclass(frozen=True)
class Outcome:
    """What a command line left: its code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The text of the one `error:` line."""
        (line,) = [line for line in self.err.splitlines() if line.startswith("error: ")]
        return line.removeprefix("error: ")

    @property
    def hint(self) -> str:
        """The text of the one `hint:` line."""
        (line,) = [line for line in self.err.splitlines() if line.startswith("hint: ")]
        return line.removeprefix("hint: ")


Trtgate = Callable[..., Outcome]


@pytest.fixture
def trtgate(capsys: pytest.CaptureFixture[str]) -> Trtgate:
    """Runs a command line in this process, and checks that no process of it is left."""

    def call(*arguments: object) -> Outcome:
        with leaves_nothing():
            code = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return call


@pytest.fixture
def files() -> Callable[[Path], list[str]]:
    """Lists every file below a folder, logs apart."""
    return lambda folder: sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "logs" not in path.parts
    )
