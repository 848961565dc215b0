import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.candidates import built, judged, warmup_of, write_profile
from tests.commands.conftest import Trtgate
from trtgate.commands.steps import STEP_SUMMARY, tell_ci
from trtgate.console import Console
from trtgate.releases.candidate import WARMUP
from trtgate.releases.seal import seal
from trtgate.releases.store import Store

pytestmark = pytest.mark.timeout(60)  # starts real runtimes


def test_a_candidate_is_printed_as_markdown(trtgate: Trtgate, tmp_path: Path) -> None:
    judged(tmp_path / "c")
    outcome = trtgate("report", tmp_path / "c")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("### candidate ")
    assert "## PASS" in outcome.out


def test_a_release_is_printed_as_text(trtgate: Trtgate, tmp_path: Path) -> None:
    store = Store(tmp_path / "r", "small")
    release_id = seal(judged(tmp_path / "c"), store).release_id
    outcome = trtgate("report", store.release_folder(release_id), "--format", "text")
    assert (outcome.code, outcome.out.startswith(f"release {release_id[:12]}")) == (0, True)


def test_junit_is_written_to_the_file_named(trtgate: Trtgate, tmp_path: Path) -> None:
    judged(tmp_path / "c", slower=2.0)
    outcome = trtgate("report", tmp_path / "c", "--format", "junit", "--out", tmp_path / "x" / "junit.xml")
    assert (outcome.code, outcome.out) == (0, "")
    assert ET.parse(tmp_path / "x" / "junit.xml").findall(".//failure")


def test_annotations_go_to_stderr_so_that_the_report_can_be_piped(trtgate: Trtgate, tmp_path: Path) -> None:
    judged(tmp_path / "c", slower=2.0)
    outcome = trtgate("report", tmp_path / "c", "--github")
    assert outcome.err.startswith("::error title=")
    assert "::error" not in outcome.out


def test_json_holds_every_part_that_is_there(trtgate: Trtgate, tmp_path: Path) -> None:
    candidate = built(tmp_path / "c")
    record = json.loads(trtgate("report", tmp_path / "c", "--json").out)
    assert record["plan"] == json.loads(candidate.path("plan.json").read_text())
    assert (record["warmup"], record["verdict"], record["release"]) == (None, None, None)


@pytest.mark.parametrize("name", ["none", "empty"])
def test_a_folder_that_is_no_candidate(trtgate: Trtgate, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    outcome = trtgate("report", tmp_path / name)
    assert (outcome.code, bool(outcome.error), "trtgate build" in outcome.hint) == (2, True, True)


def test_the_step_summary_gets_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STEP_SUMMARY, str(tmp_path / "summary.md"))
    tell_ci(judged(tmp_path / "c"), Console())
    assert "## PASS" in (tmp_path / "summary.md").read_text()


def test_a_step_summary_that_cannot_be_written_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(STEP_SUMMARY, str(tmp_path))
    tell_ci(judged(tmp_path / "c"), Console())
    assert "cannot be written" in capsys.readouterr().err


def test_canary_writes_the_step_summary(
    trtgate: Trtgate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STEP_SUMMARY, str(tmp_path / "summary.md"))
    candidate = built(tmp_path / "c", runtime={"args": ("--fault", "crash-at-start")})
    warmup_of(candidate).write(candidate.path(WARMUP))
    outcome = trtgate("canary", tmp_path / "c", "--store", tmp_path / "r", "--baseline", "default")
    assert (outcome.code, candidate.verdict().result) == (10, "fail")
    assert "## FAIL (exit 10)" in (tmp_path / "summary.md").read_text()


def test_gate_writes_the_step_summary_of_a_failed_warmup(
    trtgate: Trtgate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STEP_SUMMARY, str(tmp_path / "summary.md"))
    fault = "runtime.args=[--fault, 'wrong-output:4']"
    outcome = trtgate("gate", write_profile(tmp_path), "--out", tmp_path / "c", "--set", fault)
    assert outcome.code == 10
    assert "- decode 4: " in (tmp_path / "summary.md").read_text()
