import json
from pathlib import Path

import pytest
import yaml

from tests.candidates import small_profile, write_profile
from trtgate.errors import UsageError
from trtgate.profile import Profile

SHIPPED = sorted((Path(__file__).parent.parent / "profiles").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_profile_is_valid_and_named_like_its_file(path: Path) -> None:
    assert Profile.load(path).name == path.stem


def test_a_relative_trace_is_taken_from_the_profiles_folder(tmp_path: Path) -> None:
    path = write_profile(tmp_path, traffic={"trace": "traffic.csv"})
    assert Profile.load(path).traffic.trace == tmp_path / "traffic.csv"


def test_an_unknown_key_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    data = small_profile().model_dump(mode="json")
    data["limits"]["max_batchsize"] = 3
    path = tmp_path / "profile.yaml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(UsageError, match=r"unknown key `limits.max_batchsize`") as caught:
        Profile.load(path)
    assert caught.value.hint == "did you mean `max_batch_size`?"


@pytest.mark.parametrize("text", ["", "# only a comment\n", "[]", "42", "- name: a"])
def test_a_file_without_settings_is_no_profile(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(UsageError, match="holds no profile"):
        Profile.load(tmp_path / "p.yaml")


def test_broken_yaml_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("name: a\nmodel: {path: tiny\nlimits: 3\n")
    with pytest.raises(UsageError, match="not valid YAML, line 3"):
        Profile.load(tmp_path / "p.yaml")


def test_settings_make_a_new_profile_and_are_checked_like_a_file() -> None:
    profile = small_profile()
    changed = profile.with_settings(("limits.max_batch_size=8", "runtime.args=[--fault, 'error-rate:1']"))
    assert (changed.limits.max_batch_size, profile.limits.max_batch_size) == (8, 4)
    assert changed.runtime.args == ("--fault", "error-rate:1")
    assert changed.digest != profile.digest


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("limits.max_batch_size", "has no `=`"),
        ("limit.max_batch_size=3", "names no setting"),
        ("limits.max_batch=3", "unknown key `limits.max_batch`"),
        ("limits.max_batch_size=[", "is not valid YAML"),
        ("limits.max_batch_size=0", "greater than or equal to 1"),
        ("canary.looks=[8, 6]", "looks are ascending"),
    ],
)
def test_a_wrong_setting_is_refused(setting: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        small_profile().with_settings((setting,))
    assert message in f"{caught.value.message} {caught.value.hint}"


def test_a_gate_without_a_critical_metric_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        small_profile().with_settings(("gate.metrics=[{metric: ttft_ms, quantile: p50, critical: false}]",))
    assert "at least one metric must be critical" in caught.value.hint


def test_the_published_schema_is_that_of_the_code() -> None:
    path = Path(__file__).parent.parent / "docs" / "profile.schema.json"
    assert json.loads(path.read_text()) == Profile.model_json_schema()
