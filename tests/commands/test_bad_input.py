"""Every mistake ends in one `error:` line, one `hint:` line, the right code, and nothing half-written."""

import socket
from pathlib import Path

import pytest
import yaml

from tests.candidates import TRACE, judged, small_profile, warmup_of, write_profile
from tests.commands.conftest import Trtgate
from trtgate.releases.candidate import WARMUP
from trtgate.releases.seal import seal
from trtgate.releases.store import Store


def test_an_unknown_profile_key(trtgate: Trtgate, tmp_path: Path) -> None:
    data = small_profile().model_dump(mode="json")
    data["trafic"] = data.pop("traffic")
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(data))
    outcome = trtgate("build", tmp_path / "p.yaml", "--out", tmp_path / "c")
    assert (outcome.code, outcome.hint) == (2, "did you mean `traffic`?")
    assert outcome.error == f"unknown key `trafic` in `{tmp_path / 'p.yaml'}`"
    assert not (tmp_path / "c").exists()


def test_a_missing_profile(trtgate: Trtgate, tmp_path: Path) -> None:
    outcome = trtgate("build", tmp_path / "none.yaml")
    assert (outcome.code, outcome.error) == (2, f"`{tmp_path / 'none.yaml'}` does not exist")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "does not exist"),
        ("", "is empty"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no rows"),
        ("when,who\n1,2\n", "columns"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 3\n", "LFS"),
    ],
    ids=["missing", "empty", "header only", "wrong columns", "LFS pointer"],
)
def test_a_trace_that_cannot_be_read(
    trtgate: Trtgate, tmp_path: Path, text: str | None, message: str
) -> None:
    trace = tmp_path / "trace.csv"
    if text is not None:
        trace.write_text(text)
    outcome = trtgate("build", write_profile(tmp_path), "--trace", trace, "--out", tmp_path / "c")
    assert outcome.code == 2
    assert message.lower() in f"{outcome.error} {outcome.hint}".lower()
    assert not (tmp_path / "c").exists()


def test_a_port_in_use(trtgate: Trtgate, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        trtgate("build", write_profile(tmp_path, runtime={"port": port}), "--out", tmp_path / "c")
        outcome = trtgate("warmup", tmp_path / "c")
    assert outcome.code == 2
    assert f"`{port}`" in outcome.error
    assert not (tmp_path / "c" / WARMUP).exists()


def test_a_runtime_that_dies_at_start(trtgate: Trtgate, tmp_path: Path) -> None:
    path = write_profile(tmp_path, runtime={"args": ["--fault", "crash-at-start"]})
    trtgate("build", path, "--out", tmp_path / "c")
    outcome = trtgate("warmup", tmp_path / "c")
    assert outcome.code == 10
    assert outcome.hint
    assert not (tmp_path / "c" / WARMUP).exists()


def test_canary_before_warmup(trtgate: Trtgate, tmp_path: Path) -> None:
    trtgate("build", write_profile(tmp_path), "--out", tmp_path / "c")
    outcome = trtgate("canary", tmp_path / "c")
    assert (outcome.code, outcome.error) == (2, f"`warmup.json` is missing from `{tmp_path / 'c'}`")
    assert outcome.hint == f"run `trtgate warmup {tmp_path / 'c'}`"


def test_canary_after_a_failed_warmup(trtgate: Trtgate, tmp_path: Path) -> None:
    candidate = judged(tmp_path / "c")
    warmup_of(candidate, valid=False).write(candidate.path(WARMUP))
    outcome = trtgate("canary", tmp_path / "c", "--store", tmp_path / "r")
    assert outcome.code == 2
    assert "warm-up" in outcome.error


def test_a_release_with_one_byte_changed(trtgate: Trtgate, tmp_path: Path) -> None:
    store = Store(tmp_path / "r", "small")
    release_id = seal(judged(tmp_path / "c"), store).release_id
    store.switch("promote", release_id, "passed")
    path = store.release_folder(release_id) / "plan.json"
    path.write_bytes(path.read_bytes().replace(b"tuned", b"tunes", 1))
    for command in (("release", "verify", "small"), ("rollback", "small", "--to", release_id[:12])):
        outcome = trtgate(*command, "--store", tmp_path / "r")
        assert (outcome.code, outcome.error) == (20, f"`{path}` was changed after it was sealed")


def test_a_candidate_that_failed_is_not_released(trtgate: Trtgate, tmp_path: Path) -> None:
    judged(tmp_path / "c", slower=2.0)
    outcome = trtgate("release", tmp_path / "c", "--store", tmp_path / "r")
    assert outcome.code == 10
    assert "regressed" in outcome.error
    assert not Store(tmp_path / "r", "small").live()


def test_a_rollback_without_an_earlier_release(trtgate: Trtgate, tmp_path: Path) -> None:
    store = Store(tmp_path / "r", "small")
    store.switch("promote", seal(judged(tmp_path / "c"), store).release_id, "passed")
    outcome = trtgate("rollback", "small", "--store", tmp_path / "r")
    assert (outcome.code, outcome.hint.startswith("name one with `--to`")) == (22, True)


def test_a_store_that_another_operation_holds(trtgate: Trtgate, tmp_path: Path) -> None:
    judged(tmp_path / "c")
    with Store(tmp_path / "r", "small").locked():
        outcome = trtgate("release", tmp_path / "c", "--store", tmp_path / "r")
    assert outcome.code == 24
    assert "is held by" in outcome.error


@pytest.mark.parametrize(
    "arguments",
    [
        ("buidl",),
        ("build",),
        ("build", "--colour"),
        ("warmup", "a", "b"),
        ("build", str(TRACE), "--target", "fast"),
    ],
)
def test_a_wrong_command_line(trtgate: Trtgate, arguments: tuple[str, ...]) -> None:
    outcome = trtgate(*arguments)
    assert outcome.code == 2
    assert outcome.error
    assert "--help" in outcome.hint


def test_an_out_path_that_is_a_file(trtgate: Trtgate, tmp_path: Path) -> None:
    (tmp_path / "c").write_text("mine")
    outcome = trtgate("build", write_profile(tmp_path), "--out", tmp_path / "c")
    assert (outcome.code, (tmp_path / "c").read_text()) == (2, "mine")
