from pathlib import Path

import pytest

from tests.verdicts import ledgers
from trtgate.errors import UsageError
from trtgate.evidence.ledger import Ledger


def test_a_ledger_comes_back_from_disk_as_it_was(tmp_path: Path) -> None:
    ledger = ledgers.ledger([0.0, 0.1])
    ledger.write(tmp_path / "ledger.jsonl")
    assert Ledger.read(tmp_path / "ledger.jsonl") == ledger
    assert len((tmp_path / "ledger.jsonl").read_text().splitlines()) == 3


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledgers.ledger([0.0, 0.1]).write(path)
    path.write_text(path.read_text()[:-50])
    with pytest.raises(UsageError, match=r"ledger.jsonl`, line 3 is not valid JSON"):
        Ledger.read(path)


def test_an_empty_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_text("")
    with pytest.raises(UsageError, match="is empty"):
        Ledger.read(tmp_path / "ledger.jsonl")


def test_the_policy_digest_changes_with_any_limit() -> None:
    head = ledgers.head()
    other = head.model_copy(update={"gate": head.gate.model_copy(update={"max_error_ratio": 0.5})})
    assert head.policy_sha256 != other.policy_sha256
