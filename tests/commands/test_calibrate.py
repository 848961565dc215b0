"""Calibration on the embedded runtime: real processes, real steps; nothing here depends on how long they take."""

import os
import signal
import subprocess
import sys
import tempfile
from itertools import takewhile
from pathlib import Path

import psutil
import pytest

from tests.candidates import small_profile, write_profile
from tests.commands.conftest import Trtgate
from trtgate.evidence.environment import read_platform
from trtgate.plans.costs import Costs
from trtgate.plans.plan import Plan
from trtgate.releases.inputs import read_costs

pytestmark = pytest.mark.timeout(60)  # starts real runtimes

FEW = ("--points", 3, "--repeat", 1)


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small profile; temporary folders are made beside it, so that they can be counted."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return write_profile(tmp_path)


def measured_costs(folder: Path, **changes: object) -> Path:
    """A prior that claims to be measured, on this machine unless said otherwise."""
    prior = read_costs(small_profile(), None).model_dump(mode="json")
    for name in ("decode_replay", "decode_eager", "token_replay", "token_eager"):
        prior[name]["basis"] = "measured"
    costs = Costs.model_validate(prior | {"platform": read_platform().title} | changes)
    costs.write(folder / "costs.json")
    return folder / "costs.json"


def test_measured_costs_make_a_plan_that_says_so(trtgate: Trtgate, profile: Path, tmp_path: Path) -> None:
    out = tmp_path / "costs.json"
    outcome = trtgate("calibrate", profile, "--out", out, *FEW)
    assert outcome.code == 0
    costs = Costs.read(out)
    assert (costs.model, costs.platform) == ("tiny", read_platform().title)
    assert costs.decode_eager.sizes == costs.decode_replay.sizes == (1, 2, 4)
    assert costs.token_eager.sizes == costs.token_replay.sizes == (1, 8, 64)
    assert (costs.token_graph_bytes.of(3, 64), costs.kv_bytes_per_token) == (0, 2048)
    *lines, last = outcome.out.splitlines()
    assert (max(map(len, lines)) <= 80, last) == (True, f"written to {out}")
    assert list((tmp_path / "tmp").glob("trtgate-calibrate-*")) == []

    built = trtgate("build", profile, "--costs", out, "--out", tmp_path / "c")
    plan = Plan.read(tmp_path / "c" / "plan.json")
    assert (built.code, plan.cost_basis) == (0, "measured")
    assert plan.decode is not None
    assert plan.decode.basis == "measured"


def test_sizes_that_are_not_captured_are_said_and_left_out(
    trtgate: Trtgate, profile: Path, tmp_path: Path
) -> None:
    fault = "runtime.args=[--fault, 'skip-capture:8']"
    outcome = trtgate("calibrate", profile, "--out", tmp_path / "o", *FEW, "--set", fault)
    assert outcome.code == 0
    assert "left out, no replay steps of exactly this size: tokens 8" in outcome.out
    assert Costs.read(tmp_path / "o").token_replay.sizes == (1, 64)


def test_a_runtime_that_dies_leaves_its_log_and_no_costs(
    trtgate: Trtgate, profile: Path, tmp_path: Path
) -> None:
    fault = "runtime.args=[--fault, crash-at-start]"
    outcome = trtgate("calibrate", profile, "--out", tmp_path / "o", *FEW, "--set", fault)
    assert outcome.code == 10
    assert not (tmp_path / "o").exists()
    (logs,) = (tmp_path / "tmp").glob("trtgate-calibrate-*/logs")
    assert f"kept in `{logs}`" in outcome.err
    assert "crash-at-start" in (logs / "eager.log").read_text()


@pytest.mark.usefixtures("default_signals")
def test_an_interrupt_leaves_nothing(profile: Path, tmp_path: Path) -> None:
    code = "from trtgate.cli import main; main()"
    command = [sys.executable, "-c", code, "calibrate", profile, "--out", tmp_path / "o"]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        said = list(takewhile(lambda line: "round 1" not in line, process.stderr))
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert children, "".join(said)
    assert not psutil.wait_procs(children, timeout=10)[1]
    assert process.returncode == 130
    assert list((tmp_path / "tmp").glob("trtgate-calibrate-*")) == []
    assert not (tmp_path / "o").exists()


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_started(
    trtgate: Trtgate, profile: Path, tmp_path: Path
) -> None:
    outcome = trtgate("calibrate", profile, "--out", tmp_path, *FEW)
    assert (outcome.code, outcome.error) == (2, f"`{tmp_path}` is a folder")


@pytest.mark.parametrize("command", ["build", "gate"])
def test_costs_of_another_platform_are_refused(
    trtgate: Trtgate, profile: Path, tmp_path: Path, command: str
) -> None:
    costs = measured_costs(tmp_path, platform="8 x another, driver 1")
    outcome = trtgate(command, profile, "--costs", costs, "--out", tmp_path / "c")
    assert outcome.code == 2
    assert outcome.error == (
        f"`{costs}` holds costs of the platform `8 x another, driver 1`, this one is `{read_platform().title}`"
    )
    assert "`--any-platform`" in outcome.hint
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("change", [{}, {"platform": "8 x another, driver 1"}, {"model": "other"}])
def test_costs_of_another_platform_or_model_are_taken_where_asked_for(
    trtgate: Trtgate, profile: Path, tmp_path: Path, change: dict[str, str]
) -> None:
    costs = measured_costs(tmp_path, **change)
    plain = trtgate("build", profile, "--costs", costs, "--out", tmp_path / "c")
    asked = trtgate("build", profile, "--costs", costs, "--out", tmp_path / "c", "--any-platform")
    assert (plain.code, asked.code) == (2 if change else 0, 0)


def test_a_prior_holds_for_the_device_of_the_profile(trtgate: Trtgate, profile: Path, tmp_path: Path) -> None:
    trtgate("build", profile, "--out", tmp_path / "c")
    again = ("build", profile, "--costs", tmp_path / "c" / "costs.json", "--out", tmp_path / "d")
    assert trtgate(*again).code == 0
    assert "platform `cpu`, this one is `h200`" in trtgate(*again, "--set", "grid.device=h200").error
