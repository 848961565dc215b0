import shutil
from pathlib import Path

import pytest

from tests.candidates import built, judged, ledger_of, warmup_of
from trtgate.errors import ExitCode, IntegrityError, TrtgateError, UsageError
from trtgate.releases.candidate import LEDGER, VERDICT, WARMUP
from trtgate.releases.seal import seal
from trtgate.releases.store import Store
from trtgate.verdicts.judge import judge


def store_in(tmp_path: Path) -> Store:
    return Store(tmp_path / "releases", "small")


def test_a_candidate_that_passed_is_sealed_with_its_evidence(tmp_path: Path) -> None:
    candidate = judged(tmp_path / "c")
    sealed = seal(candidate, store_in(tmp_path))
    assert sealed.fresh
    assert sealed.release.version == 1
    assert sealed.release.platform.gpu_note == "no NVIDIA driver"
    assert sealed.release.verdict.ledger_sha256 == sealed.release.files[LEDGER]


def test_sealing_the_same_candidate_again_finds_the_same_release(tmp_path: Path) -> None:
    candidate = judged(tmp_path / "c")
    first, again = seal(candidate, store_in(tmp_path)), seal(candidate, store_in(tmp_path))
    assert (again.release_id, again.fresh) == (first.release_id, False)


def test_versions_count_up_and_name_their_parent(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    first = seal(judged(tmp_path / "a", grid={"max_decode_graphs": 2}), store)
    store.switch("promote", first.release_id, "passed")
    second = seal(judged(tmp_path / "b"), store)
    assert (second.release.version, second.release.parent) == (2, first.release_id)


def test_a_candidate_that_failed_is_refused_with_the_code_of_its_verdict(tmp_path: Path) -> None:
    candidate = judged(tmp_path / "c", slower=2.0)
    with pytest.raises(TrtgateError, match="is fail: ttft_ms p95 regressed") as caught:
        seal(candidate, store_in(tmp_path))
    assert caught.value.exit_code == ExitCode.FAIL
    assert not store_in(tmp_path).folder.exists()


def test_a_verdict_written_by_hand_is_refused(tmp_path: Path) -> None:
    candidate = judged(tmp_path / "c", slower=2.0)
    passing = judge(ledger_of(candidate, 1.0)).model_copy(
        update={"ledger_sha256": candidate.verdict().ledger_sha256}
    )
    passing.write(candidate.path(VERDICT))
    with pytest.raises(IntegrityError, match=r"is not what `ledger.jsonl` says"):
        seal(candidate, store_in(tmp_path))


def test_evidence_of_another_plan_is_refused(tmp_path: Path) -> None:
    candidate, other = judged(tmp_path / "a"), judged(tmp_path / "b", grid={"max_decode_graphs": 2})
    shutil.copy(other.path(LEDGER), candidate.path(LEDGER))
    with pytest.raises(UsageError, match="belongs to an earlier plan"):
        seal(candidate, store_in(tmp_path))


def test_a_failed_warm_up_is_refused(tmp_path: Path) -> None:
    candidate = judged(tmp_path / "c")
    warmup_of(candidate, valid=False).write(candidate.path(WARMUP))
    with pytest.raises(UsageError, match=r"the warm-up of .* failed: decode 1"):
        seal(candidate, store_in(tmp_path))


def test_a_changed_configuration_is_refused(tmp_path: Path) -> None:
    candidate = judged(tmp_path / "c")
    path = candidate.config_folder / "config.yaml"
    path.write_text(path.read_text() + "max_batch_size: 99\n")
    with pytest.raises(IntegrityError, match=r"config.yaml` is not what `build` wrote"):
        seal(candidate, store_in(tmp_path))


def test_each_missing_step_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    candidate = built(tmp_path / "c")
    with pytest.raises(UsageError, match=r"`warmup.json` is missing") as caught:
        seal(candidate, store_in(tmp_path))
    assert caught.value.hint == f"run `trtgate warmup {candidate.folder}`"
    warmup_of(candidate).write(candidate.path(WARMUP))
    with pytest.raises(UsageError, match=r"`verdict.json` is missing"):
        seal(candidate, store_in(tmp_path))
