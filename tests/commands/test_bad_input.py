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

pytestmark = pytest.mark.timeout(60)  # starts real runtimes


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


@pytest.mark.parametrize("arguments", [(), ("release",)])
def test_a_command_line_without_a_command(trtgate: Trtgate, arguments: tuple[str, ...]) -> None:
    outcome = trtgate(*arguments)
    assert (outcome.code, outcome.error) == (2, "a command is missing")
    assert outcome.hint == f"see `{' '.join(('trtgate', *arguments))} --help`"


def test_an_option_that_is_not_known_points_to_the_help_of_its_command(trtgate: Trtgate) -> None:
    outcome = trtgate("release", "list", "small", "--nonsense")
    assert (outcome.code, outcome.hint) == (2, "see `trtgate release list --help`")


def test_a_word_that_an_option_does_not_take(trtgate: Trtgate, tmp_path: Path) -> None:
    outcome = trtgate("report", tmp_path, "--format", "html")
    assert outcome.code == 2
    assert "Value error" not in outcome.error


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "{long}"),
        ("build", "{profile}", "--out", "{long}"),
        ("build", "{profile}", "--out", "{file}/c"),
        ("build", "{profile}", "--set", "model.path={long}"),
        ("release", "{candidate}", "--store", "{file}"),
        ("release", "{candidate}", "--store", "{long}"),
    ],
    ids=" ".join,
)
def test_a_path_that_the_system_refuses(trtgate: Trtgate, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("")
    judged(tmp_path / "c")
    places = {
        "long": "n" * 300,
        "file": tmp_path / "file",
        "profile": write_profile(tmp_path),
        "candidate": tmp_path / "c",
    }
    outcome = trtgate(*(argument.format(**places) for argument in arguments))
    assert (outcome.code, outcome.hint) == (2, "check the path and its rights")
    assert "cannot be used" in outcome.error


def test_a_report_is_not_written_over_a_folder(trtgate: Trtgate, tmp_path: Path) -> None:
    judged(tmp_path / "c")
    outcome = trtgate("report", tmp_path / "c", "--out", tmp_path)
    assert (outcome.code, outcome.error) == (2, f"`{tmp_path}` is a folder")


def test_more_draft_tokens_than_a_step_holds(trtgate: Trtgate, tmp_path: Path) -> None:
    outcome = trtgate(
        "build", write_profile(tmp_path), "--set", "limits.draft_len=64", "--out", tmp_path / "c"
    )
    assert outcome.code == 2
    assert "takes 65 tokens a step" in outcome.error
    assert not (tmp_path / "c").exists()


def test_a_damaged_manifest_is_listed_and_refused(trtgate: Trtgate, tmp_path: Path) -> None:
    store = Store(tmp_path / "r", "small")
    release_id = seal(judged(tmp_path / "c"), store).release_id
    store.switch("promote", release_id, "passed")
    manifest = store.release_folder(release_id) / "release.json"
    manifest.write_text("garbage")
    listed = trtgate("release", "list", "small", "--store", store.root)
    assert (listed.code, "in service, DAMAGED" in listed.out) == (0, True)
    for command in ("show", "verify"):
        for release in ((), (release_id[:12],)):
            outcome = trtgate("release", command, "small", *release, "--store", store.root)
            assert outcome.code == 20
            assert outcome.error == f"`{manifest}` was changed: it is not release `{release_id[:12]}`"


def test_a_release_in_service_is_called_so_without_promotion_too(trtgate: Trtgate, tmp_path: Path) -> None:
    judged(tmp_path / "c")
    trtgate("release", tmp_path / "c", "--store", tmp_path / "r")
    outcome = trtgate("release", tmp_path / "c", "--no-promote", "--store", tmp_path / "r")
    assert outcome.out.endswith("is in service\n")


def test_a_folder_with_blanks_can_be_typed_from_the_hint(trtgate: Trtgate, tmp_path: Path) -> None:
    folder = tmp_path / "größe 2"
    trtgate("build", write_profile(tmp_path), "--out", folder)
    outcome = trtgate("judge", folder)
    assert (outcome.code, outcome.hint) == (2, f"run `trtgate canary '{folder}'`")


def test_an_interrupt_is_said_and_has_its_code(
    trtgate: Trtgate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trtgate.releases.candidate.open_candidate", interrupted)
    outcome = trtgate("judge", tmp_path)
    assert (outcome.code, outcome.error) == (130, "interrupted")
    assert outcome.hint.endswith("run the same command again")
