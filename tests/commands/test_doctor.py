import json
from pathlib import Path

import pytest

from tests.candidates import platform
from tests.commands.conftest import Trtgate
from trtgate.evidence import environment


def test_a_machine_without_a_driver_is_told_what_to_do(
    trtgate: Trtgate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "read_platform", platform)
    outcome = trtgate("doctor", "--store", tmp_path)
    assert outcome.code == 0
    assert "driver             no NVIDIA driver" in outcome.out
    assert "driver: install the NVIDIA driver" in outcome.out
    assert (
        max(len(line) for line in outcome.out.splitlines() if str(tmp_path) not in line and "---" not in line)
        <= 80
    )


def test_json_holds_the_platform_and_what_is_to_do(
    trtgate: Trtgate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "read_platform", lambda: platform(packages={}))
    found = json.loads(trtgate("doctor", "--store", tmp_path, "--json").out)
    assert found["gpu_note"] == "no NVIDIA driver"
    assert set(found["todo"]) == {"driver", "reference"}


def test_a_store_that_cannot_be_written_is_said(trtgate: Trtgate, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = trtgate("doctor", "--store", tmp_path / "file" / "releases")
    assert "store: give another folder with `--store`" in outcome.out
