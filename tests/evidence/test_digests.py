import json
import os
from pathlib import Path

import pytest

from trtgate.evidence import digests
from trtgate.evidence.digests import digest_files
from trtgate.record import sha256


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that counts as large, and its cache beside it."""
    monkeypatch.setattr(digests, "WORTH_BYTES", 4)
    path = tmp_path / "weights"
    path.write_bytes(b"weights")
    return path


def test_a_remembered_digest_is_used_until_the_file_changes(large: Path) -> None:
    cache = large.parent / "digests.json"
    assert digest_files([large], cache=cache) == {large: sha256(b"weights")}
    cache.write_text(json.dumps(dict.fromkeys(json.loads(cache.read_text()), "remembered")))
    assert digest_files([large], cache=cache) == {large: "remembered"}
    large.write_bytes(b"changed")
    os.utime(large, ns=(1, 1))
    assert digest_files([large], cache=cache) == {large: sha256(b"changed")}


def test_a_full_rehash_trusts_nothing_that_was_remembered(large: Path) -> None:
    cache = large.parent / "digests.json"
    digest_files([large], cache=cache)
    cache.write_text(json.dumps(dict.fromkeys(json.loads(cache.read_text()), "remembered")))
    assert digest_files([large], rehash=True, cache=cache) == {large: sha256(b"weights")}


@pytest.mark.parametrize("content", ["", "[]", "{", "42"])
def test_a_damaged_cache_costs_time_and_nothing_else(large: Path, content: str) -> None:
    cache = large.parent / "digests.json"
    cache.write_text(content)
    assert digest_files([large], cache=cache) == {large: sha256(b"weights")}


def test_a_cache_that_cannot_be_written_costs_time_and_nothing_else(large: Path) -> None:
    blocked = large.parent / "file"
    blocked.write_text("")
    assert digest_files([large], cache=blocked / "digests.json") == {large: sha256(b"weights")}
