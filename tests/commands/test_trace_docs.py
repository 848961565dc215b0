"""`docs/traces.md` says what the commands really do."""

import re
import shlex
from pathlib import Path

import pytest

from tests.commands.conftest import Trtgate
from trtgate.traces import READERS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "traces.md").read_text()
EXAMPLES = [
    (match[1], "\n".join(line[4:] for line in match[2].splitlines()))
    for match in re.finditer(r"^    \$ trtgate (.+)\n((?:(?:    (?!\$).*)?\n)*)", TEXT, re.MULTILINE)
    if match[2].strip()
]


def test_every_format_has_its_row() -> None:
    cells = {
        name
        for row in re.findall(r"^\| (`.+?) \|", TEXT, re.MULTILINE)
        for name in re.findall(r"`(.+?)`", row)
    }
    assert set(READERS) - {"prometheus"} <= cells
    assert "`prometheus`" in TEXT


@pytest.mark.parametrize(("command", "output"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_an_example_prints_what_stands_below_it(
    trtgate: Trtgate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, output: str
) -> None:
    for name in ("tests", "profiles"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    outcome = trtgate(*shlex.split(command))
    assert (outcome.out + outcome.err).strip() == output.strip()


def test_the_examples_are_found() -> None:
    assert len(EXAMPLES) == 5
