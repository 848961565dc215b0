"""What the long steps keep, refuse and leave behind, without starting anything."""

from pathlib import Path

import pytest

from tests.candidates import built, judged, small_profile, warmup_of
from trtgate.commands import steps
from trtgate.commands.steps import on_any_port, open_ledger, run_warmup, try_release
from trtgate.console import Console
from trtgate.errors import LockedError, RuntimeFailedError, UnhealthyError, UsageError
from trtgate.evidence.arm import rendered_arm
from trtgate.evidence.ledger import Ledger
from trtgate.releases.candidate import WARMUP
from trtgate.releases.seal import seal
from trtgate.releases.store import Store


def test_the_same_comparison_goes_on_with_its_ledger(tmp_path: Path) -> None:
    candidate = judged(tmp_path / "c")
    ledger = candidate.ledger()
    assert open_ledger(candidate, ledger.head, None) == ledger
    assert not (candidate.folder / "ledger-1.jsonl").exists()


def test_a_further_attempt_counts_and_keeps_the_ledger_before(tmp_path: Path) -> None:
    candidate = judged(tmp_path / "c", slower=2.0)
    ledger = candidate.ledger()
    again = open_ledger(candidate, ledger.head, "a fan was broken")
    assert (again.head.attempt, again.head.attempt_reason, again.pairs) == (2, "a fan was broken", ())
    assert Ledger.read(candidate.folder / "ledger-1.jsonl") == ledger


def test_another_baseline_is_a_further_attempt_too(tmp_path: Path) -> None:
    candidate = judged(tmp_path / "c", slower=2.0)
    head = candidate.ledger().head.model_copy(update={"baseline": "eager", "baseline_sha256": "e" * 64})
    found = open_ledger(candidate, head, None).head
    assert (found.attempt, "the baseline before was release 1" in found.attempt_reason) == (2, True)


def test_another_plan_begins_anew(tmp_path: Path) -> None:
    candidate = judged(tmp_path / "c")
    head = candidate.ledger().head.model_copy(update={"candidate_sha256": "f" * 64})
    assert open_ledger(candidate, head, None) == Ledger(head=head)


def test_a_warm_up_that_breaks_off_leaves_no_proof_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeFailedError("the runtime died")

    candidate = built(tmp_path / "c")
    warmup_of(candidate).write(candidate.path(WARMUP))
    monkeypatch.setattr(steps, "warm_up", broken)
    with pytest.raises(RuntimeFailedError):
        run_warmup(candidate, Console(quiet=True))
    assert not candidate.path(WARMUP).exists()


def test_two_warm_ups_of_one_folder_are_kept_apart(tmp_path: Path) -> None:
    candidate = built(tmp_path / "c")
    warmup_of(candidate).write(candidate.path(WARMUP))
    with candidate.locked(), pytest.raises(LockedError, match="in use by another"):
        run_warmup(candidate, Console(quiet=True))
    assert candidate.path(WARMUP).exists()


def test_a_trial_start_does_not_need_the_port_of_what_is_in_service(tmp_path: Path) -> None:
    arm = rendered_arm(small_profile(runtime={"port": 8000}), "eager", "eager", tmp_path)
    assert on_any_port(arm).profile.runtime.port == 0


def test_a_release_that_cannot_be_started_is_unhealthy_and_leaves_all_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise UsageError("`vllm` is not on `PATH`")

    store = Store(tmp_path / "r", "small")
    release_id = seal(judged(tmp_path / "c"), store).release_id
    monkeypatch.setattr(steps, "started", refused)
    with pytest.raises(UnhealthyError, match="is not on `PATH`"):
        try_release(store, release_id, Console(quiet=True))
