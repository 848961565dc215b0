import os
from pathlib import Path

import pytest

from tests.candidates import judged
from trtgate.errors import IntegrityError, LockedError, NotEligibleError, UsageError
from trtgate.record import write_atomic
from trtgate.releases.seal import seal
from trtgate.releases.store import INTENT, Intent, Store, open_store


def sealed(tmp_path: Path, *decode_graphs: int) -> tuple[Store, list[str]]:
    """A store with one release for each number of graphs."""
    store = Store(tmp_path / "releases", "small")
    ids = []
    for count in decode_graphs:
        candidate = judged(tmp_path / f"candidate-{count}", grid={"max_decode_graphs": count})
        ids.append(seal(candidate, store).release_id)
    return store, ids


def test_a_sealed_release_is_whole_and_named_by_its_manifest(tmp_path: Path) -> None:
    store, (release_id,) = sealed(tmp_path, 3)
    release = store.verify(release_id)
    assert release.release_id == release_id
    assert {"plan.json", "ledger.jsonl", "verdict.json", "warmup.json", "config/config.yaml"} <= set(
        release.files
    )


@pytest.mark.parametrize("name", ["ledger.jsonl", "config/config.yaml", "release.json", "verdict.json"])
def test_one_changed_byte_is_found_and_named(tmp_path: Path, name: str) -> None:
    store, (release_id,) = sealed(tmp_path, 3)
    path = store.release_folder(release_id) / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(IntegrityError, match=f"`{path}` was changed"):
        store.verify(release_id)


def test_a_missing_and_an_additional_file_are_found(tmp_path: Path) -> None:
    store, (release_id,) = sealed(tmp_path, 3)
    extra = store.release_folder(release_id) / "config" / "extra.yaml"
    extra.write_text("a: 1")
    with pytest.raises(IntegrityError, match="is not part of the release"):
        store.verify(release_id)
    extra.unlink()
    (store.release_folder(release_id) / "plan.json").unlink()
    with pytest.raises(IntegrityError, match=r"plan.json` is missing"):
        store.verify(release_id)


def test_switching_moves_current_and_keeps_the_history(tmp_path: Path) -> None:
    store, (first, second) = sealed(tmp_path, 2, 3)
    assert store.live() is None
    store.switch("promote", first, "passed")
    store.switch("promote", second, "passed")
    store.switch("rollback", first, "slow")
    assert store.live() == first
    assert [(event.operation, event.release) for event in store.history()] == [
        ("promote", first),
        ("promote", second),
        ("rollback", first),
    ]
    assert not (store.folder / INTENT).exists()


def test_a_switch_that_was_cut_short_after_the_link_is_finished(tmp_path: Path) -> None:
    store, (first, second) = sealed(tmp_path, 2, 3)
    store.switch("promote", first, "passed")
    intent = Intent(operation="promote", release=second, replaced=first, reason="r", time="t", who="w")
    write_atomic(store.folder / INTENT, intent.to_json().encode())
    (store.folder / "current").unlink()
    (store.folder / "current").symlink_to(second[:12])
    assert "finished" in (store.resume() or "")
    assert [event.release for event in store.history()] == [first, second]


def test_a_switch_that_was_cut_short_before_the_link_is_forgotten(tmp_path: Path) -> None:
    store, (first, second) = sealed(tmp_path, 2, 3)
    store.switch("promote", first, "passed")
    intent = Intent(operation="promote", release=second, replaced=first, reason="r", time="t", who="w")
    write_atomic(store.folder / INTENT, intent.to_json().encode())
    assert "had not begun" in (store.resume() or "")
    assert store.live() == first
    assert len(store.history()) == 1
    assert store.resume() is None


def test_a_second_operation_is_refused_at_once_and_names_the_holder(tmp_path: Path) -> None:
    store = Store(tmp_path, "small")
    with (
        store.locked(),
        pytest.raises(LockedError, match=f"process {os.getpid()}"),
        Store(tmp_path, "small").locked(),
    ):
        pass
    with store.locked():
        pass


def test_what_a_killed_seal_left_is_swept_by_the_next_operation(tmp_path: Path) -> None:
    store, _ids = sealed(tmp_path, 3)
    (store.folder / ".staging-killed").mkdir()
    (store.folder / ".current.new").symlink_to("nowhere")
    with store.locked():
        assert not list(store.folder.glob(".staging-*"))
        assert not (store.folder / ".current.new").is_symlink()


def test_a_release_is_found_by_its_first_characters(tmp_path: Path) -> None:
    store, (release_id,) = sealed(tmp_path, 3)
    assert store.resolve(release_id[:6]) == release_id
    with pytest.raises(NotEligibleError, match="no release of `small` starts with `zz`"):
        store.resolve("zz")


def test_a_store_without_the_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no releases of `other`"):
        open_store(tmp_path, "other")


def test_a_link_to_a_removed_release_is_an_integrity_error(tmp_path: Path) -> None:
    store, (release_id,) = sealed(tmp_path, 3)
    store.switch("promote", release_id, "passed")
    (store.release_folder(release_id) / "release.json").unlink()
    with pytest.raises(IntegrityError, match="which is missing"):
        store.live()


@pytest.mark.parametrize("name", ["..", "../x", "/tmp", "", ".", "a b", "n" * 300])
def test_a_name_that_would_lead_out_of_the_store_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is no name of a deployment"):
        open_store(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def spoil(store: Store, release_id: str) -> None:
    """Change the manifest of one release so that it still can be read."""
    path = store.release_folder(release_id) / "release.json"
    path.write_text(path.read_text().replace('"who": "', '"who": "not '))


def test_a_changed_manifest_in_service_keeps_the_id_that_was_put_in_service(tmp_path: Path) -> None:
    store, (first, second) = sealed(tmp_path, 2, 3)
    store.switch("promote", first, "passed")
    store.switch("promote", second, "passed")
    spoil(store, second)
    assert store.live() == second
    with pytest.raises(IntegrityError, match=f"{second[:12]}/release.json` was changed"):
        store.verify(second)


@pytest.mark.parametrize("damage", [b"garbage", b"", b"\xff\xfe"])
def test_a_damaged_manifest_is_named_and_does_not_hide_the_other_releases(
    tmp_path: Path, damage: bytes
) -> None:
    store, (first, second) = sealed(tmp_path, 2, 3)
    (store.release_folder(first) / "release.json").write_bytes(damage)
    assert [release_id for release_id, _release in store.releases()] == [second]
    assert store.damaged() == (first[:12],)
    assert store.resolve(second[:6]) == second
    with pytest.raises(IntegrityError, match=f"it is not release `{first[:12]}`"):
        store.resolve(first)


def test_a_damaged_intent_says_how_to_go_on(tmp_path: Path) -> None:
    store, (_first,) = sealed(tmp_path, 3)
    (store.folder / INTENT).write_text("junk")
    with pytest.raises(IntegrityError, match="is damaged") as caught:
        store.resume()
    assert "trtgate release list small" in caught.value.hint
