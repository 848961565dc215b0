from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.candidates import built, judged, warmup_of
from trtgate.errors import IntegrityError, UsageError
from trtgate.releases.candidate import LEDGER, VERDICT, WARMUP
from trtgate.releases.report import (
    MAX_SUMMARY_BYTES,
    append_summary,
    read_report,
    report_junit,
    report_markdown,
    report_text,
)
from trtgate.releases.seal import seal
from trtgate.releases.store import Store


def sealed(tmp_path: Path) -> Path:
    store = Store(tmp_path / "releases", "small")
    return store.release_folder(seal(judged(tmp_path / "c"), store).release_id)


def test_plan_warmup_and_platform_come_before_the_verdict(tmp_path: Path) -> None:
    text = report_markdown(read_report(judged(tmp_path / "c").folder))
    places = [
        text.index(word)
        for word in ("| plan |", "| platform | cpu: some cpu", "| warm-up | proven", "## PASS")
    ]
    assert places == sorted(places)
    assert text.startswith("### candidate ")


def test_a_release_is_reported_with_its_version_and_who_sealed_it(tmp_path: Path) -> None:
    folder = sealed(tmp_path)
    text = report_markdown(read_report(folder))
    assert text.startswith(f"### release {folder.name} of small, version 1")
    assert "| sealed |" in text
    assert "## PASS" in text


def test_the_link_to_what_is_in_service_is_a_release_too(tmp_path: Path) -> None:
    folder = sealed(tmp_path)
    (folder.parent / "current").symlink_to(folder.name)
    assert read_report(folder.parent / "current").folder == folder


def test_a_release_with_one_byte_changed_is_not_reported(tmp_path: Path) -> None:
    folder = sealed(tmp_path)
    path = folder / "verdict.json"
    path.write_bytes(path.read_bytes().replace(b"pass", b"fail", 1))
    with pytest.raises(IntegrityError, match="was changed after it was sealed"):
        read_report(folder)


def test_a_manifest_in_a_folder_of_another_name_is_not_reported(tmp_path: Path) -> None:
    folder = sealed(tmp_path)
    with pytest.raises(IntegrityError, match="not of `000000000000`"):
        read_report(folder.rename(folder.with_name("0" * 12)))


def test_a_verdict_that_the_ledger_does_not_give_is_not_reported(tmp_path: Path) -> None:
    candidate, slow = judged(tmp_path / "c"), judged(tmp_path / "slow", slower=2.0)
    slow.verdict().write(candidate.path(VERDICT))
    with pytest.raises(IntegrityError, match=r"is not what `ledger.jsonl` says"):
        read_report(candidate.folder)


def test_steps_that_were_not_done_are_said(tmp_path: Path) -> None:
    report = read_report(built(tmp_path / "c").folder)
    assert "| warm-up | not run yet |" in report_markdown(report)
    assert report_markdown(report).endswith("Not judged yet.\n")
    with pytest.raises(UsageError, match="nothing to report"):
        report_junit(report)


def test_a_failed_warmup_names_its_buckets_in_every_format(tmp_path: Path) -> None:
    candidate = built(tmp_path / "c")
    warmup_of(candidate, valid=False).write(candidate.path(WARMUP))
    report = read_report(candidate.folder)
    line = "decode 4: 1 of 1 answers differ from eager"
    assert f"- {line}" in report_markdown(report)
    assert line in report_text(report)
    failed = ET.fromstring(report_junit(report)).findall(".//failure/..")
    assert "decode 4" in [case.get("name") for case in failed]


def test_the_suites_of_warmup_and_verdict_add_up(tmp_path: Path) -> None:
    candidate = judged(tmp_path / "c", slower=2.0)
    root = ET.fromstring(report_junit(read_report(candidate.folder)))
    suites = root.findall("testsuite")
    assert [suite.get("name") for suite in suites] == ["trtgate small warm-up", "trtgate small"]
    assert int(root.get("tests", "0")) == len(root.findall(".//testcase"))
    assert int(root.get("failures", "0")) == len(root.findall(".//failure")) > 0


def test_words_of_a_server_cannot_break_the_table(tmp_path: Path) -> None:
    candidate = judged(tmp_path / "c")
    hostile = warmup_of(candidate).model_copy(update={"reason": "a | b <script>\x1b[31m\n\n# x" + "y" * 9999})
    hostile.write(candidate.path(WARMUP))
    rows = report_markdown(read_report(candidate.folder)).splitlines()
    (row,) = [row for row in rows if row.startswith("| warm-up")]
    assert "a \\| b &lt;script> [31m # x" in row
    assert len(row) < 400


def test_text_has_80_columns(tmp_path: Path) -> None:
    text = report_text(read_report(judged(tmp_path / "c").folder))
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("candidate ")


def test_a_summary_is_appended_and_never_grows_beyond_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    append_summary(path, "first\n")
    append_summary(path, "ü" * MAX_SUMMARY_BYTES)
    append_summary(path, "no room")
    assert path.stat().st_size <= MAX_SUMMARY_BYTES
    assert path.read_text(encoding="utf-8").strip("ü") == "first\n"


def test_a_ledger_of_another_plan_is_refused(tmp_path: Path) -> None:
    candidate = judged(tmp_path / "a")
    other = judged(tmp_path / "b", grid={"max_decode_graphs": 2})
    candidate.path(LEDGER).write_bytes(other.path(LEDGER).read_bytes())
    with pytest.raises(UsageError, match="belongs to an earlier plan"):
        read_report(candidate.folder)
