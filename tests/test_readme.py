"""What the README and the pipelines say exists, exists."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from trtgate.cli import app, run
from trtgate.errors import ExitCode

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
COMMANDS = {(info.name or info.callback.__name__) for info in app.registered_commands} | {
    group.name for group in app.registered_groups
}


def test_the_table_of_commands_is_complete() -> None:
    table = README[README.index("## Commands") : README.index("Exit codes, everywhere")]
    assert set(re.findall(r"^\| `(\w+)", table, re.MULTILINE)) == COMMANDS


def test_the_table_of_exit_codes_is_complete() -> None:
    table = README[README.index("Exit codes, everywhere") : README.index("## Runtimes")]
    rows = [line.split("|")[1] for line in table.splitlines() if re.match(r"\| \d", line)]
    assert {int(code) for row in rows for code in re.findall(r"\d+", row)} == {int(code) for code in ExitCode}


def command_lines() -> list[str]:
    """Every `trtgate ...` line of the README's shell blocks and of the pipelines."""
    found = re.findall(r"^trtgate .*$", README, re.MULTILINE)
    for path in (ROOT / "pipelines").glob("*.yml"):
        jobs = yaml.safe_load(path.read_text())["jobs"].values()
        runs = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
        found += [
            line.strip() for text in runs for line in text.splitlines() if line.strip().startswith("trtgate ")
        ]
    return found


@pytest.mark.parametrize("line", command_lines())
def test_every_command_line_that_is_shown_names_real_commands_and_options(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(re.sub(r"\$\{\{.*?\}\}", "value", line))[1:]
    assert words[0] in COMMANDS
    assert run([words[0], "--help"]) == 0
    options = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    assert {word for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#h][^)#]*)\)", README))))
def test_every_local_link_of_the_readme_leads_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
