import json
import shutil
from pathlib import Path

import pytest

from tests.candidates import built, judged, ledger_of, warmup_of
from tests.verdicts import ledgers
from trtgate.errors import ExitCode, IntegrityError, NotEligibleError, TrtgateError, UsageError
from trtgate.evidence.environment import identify_model
from trtgate.record import sha256_file
from trtgate.releases.candidate import LEDGER, PLAN, PROFILE, VERDICT, WARMUP
from trtgate.releases.seal import require_compared, require_model, seal
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


@pytest.mark.parametrize("name", ["histogram.json", "held-out.json", "costs.json"])
def test_a_file_that_was_changed_after_build_is_not_sealed(tmp_path: Path, name: str) -> None:
    candidate = judged(tmp_path / "c")
    path = candidate.path(name)
    for damage in (lambda: path.write_text(path.read_text().replace("1", "2", 1)), path.unlink):
        damage()
        with pytest.raises(IntegrityError, match=f"{name}` is not what `build` wrote"):
            seal(candidate, Store(tmp_path / "r", "small"))


def test_evidence_of_two_machines_models_or_runtime_versions_is_refused(tmp_path: Path) -> None:
    candidate = judged(tmp_path / "c")
    report, ledger = candidate.warmup(), candidate.ledger()
    for changes in ({"platform": "1 x another"}, {"model_sha256": "e" * 64}):
        other = ledger.model_copy(update={"head": ledger.head.model_copy(update=changes)})
        other.write(candidate.path(LEDGER))
        judge(other).write(candidate.path(VERDICT))
        with pytest.raises(IntegrityError, match="do not share one"):
            seal(candidate, store_in(tmp_path))
    other = ledgers.changed(ledger, 0, runtime_version="9.9")
    other.write(candidate.path(LEDGER))
    judge(other).write(candidate.path(VERDICT))
    with pytest.raises(IntegrityError, match="do not share one runtime version"):
        seal(candidate, store_in(tmp_path))
    report.model_copy(update={"runtime_version": "9.9"}).write(candidate.path(WARMUP))
    assert seal(candidate, store_in(tmp_path)).fresh


def test_a_candidate_compared_with_something_else_than_what_is_in_service_is_not_promoted(
    tmp_path: Path,
) -> None:
    store, candidate = store_in(tmp_path), judged(tmp_path / "b")
    require_compared(candidate, store)
    first = seal(judged(tmp_path / "a", grid={"max_decode_graphs": 2}), store)
    store.switch("promote", first.release_id, "passed")
    with pytest.raises(NotEligibleError, match="compared with release 1, in service is release"):
        require_compared(candidate, store)
    ledger = candidate.ledger()
    head = ledger.head.model_copy(update={"baseline_sha256": first.release.plan_sha256})
    judge(ledger.model_copy(update={"head": head})).write(candidate.path(VERDICT))
    require_compared(candidate, store)


def test_a_release_whose_model_files_were_changed_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights.bin").write_bytes(b"one")
    release = seal(judged(tmp_path / "c"), store_in(tmp_path)).release
    release = release.model_copy(update={"model": identify_model(str(folder))})
    require_model(release)
    (folder / "weights.bin").write_bytes(b"another")
    with pytest.raises(IntegrityError, match=r"weights.bin` is not what release .* was judged with"):
        require_model(release)


def test_a_warm_up_that_leaves_out_a_bucket_of_the_plan_proves_nothing(tmp_path: Path) -> None:
    candidate = judged(tmp_path / "c")
    report = candidate.warmup()
    report.model_copy(update={"buckets": report.buckets[1:]}).write(candidate.path(WARMUP))
    with pytest.raises(UsageError, match=f"does not prove {report.buckets[0].title}"):
        seal(candidate, store_in(tmp_path))


def test_a_profile_of_an_older_version_is_not_called_changed(tmp_path: Path) -> None:
    candidate = judged(tmp_path / "c")
    path, plan = candidate.path(PROFILE), candidate.plan()
    data = json.loads(path.read_text())
    del data["canary"]["seed"]  # as if this key were newer than the file
    path.write_text(json.dumps(data, indent=2, sort_keys=True) + "\n")
    plan.model_copy(update={"profile_sha256": sha256_file(path)}).write(candidate.path(PLAN))
    assert candidate.plan().name == "small"
    path.write_text(path.read_text().replace("small", "other"))
    with pytest.raises(IntegrityError, match="was changed after `build`"):
        candidate.plan()
