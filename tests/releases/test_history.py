from pathlib import Path

import pytest

from trtgate.errors import IntegrityError
from trtgate.releases.history import append_event, earlier_releases, read_history, rolled_back_from

A, B, C = "a" * 64, "b" * 64, "c" * 64


def history(path: Path, *events: tuple[str, str, str | None]):
    for operation, release, replaced in events:
        append_event(path, operation, release, replaced, "because")
    return read_history(path)


def test_events_are_kept_in_order_with_who_and_why(tmp_path: Path) -> None:
    events = history(tmp_path / "h", ("promote", A, None), ("promote", B, A))
    assert [(event.sequence, event.release, event.replaced) for event in events] == [(1, A, None), (2, B, A)]
    assert "@" in events[0].who
    assert events[0].reason == "because"


@pytest.mark.parametrize(
    "change", [lambda t: t.replace("because", "trust me", 1), lambda t: t.split("\n", 1)[1]]
)
def test_a_changed_or_missing_line_breaks_the_chain(tmp_path: Path, change) -> None:
    path = tmp_path / "h"
    history(path, ("promote", A, None), ("promote", B, A))
    path.write_text(change(path.read_text()))
    with pytest.raises(IntegrityError, match="was changed at line"):
        read_history(path)


def test_nothing_is_appended_to_a_broken_chain(tmp_path: Path) -> None:
    path = tmp_path / "h"
    history(path, ("promote", A, None), ("promote", B, A))
    path.write_text(broken := path.read_text().replace(A, C))
    with pytest.raises(IntegrityError):
        append_event(path, "promote", C, B, "because")
    assert path.read_text() == broken


def test_a_release_gone_back_from_is_marked_until_promoted_again(tmp_path: Path) -> None:
    events = history(tmp_path / "h", ("promote", A, None), ("promote", B, A), ("rollback", A, B))
    assert rolled_back_from(events) == {B}
    events = history(tmp_path / "h", ("promote", B, A))
    assert rolled_back_from(events) == set()


def test_a_second_rollback_does_not_bounce_to_the_broken_release(tmp_path: Path) -> None:
    events = history(
        tmp_path / "h", ("promote", A, None), ("promote", B, A), ("promote", C, B), ("rollback", B, C)
    )
    assert earlier_releases(events, B) == (A,)


def test_the_way_back_walks_from_the_newest_to_the_oldest(tmp_path: Path) -> None:
    events = history(tmp_path / "h", ("promote", A, None), ("promote", B, A), ("promote", C, B))
    assert earlier_releases(events, C) == (B, A)
    assert earlier_releases(events, A) == ()


@pytest.mark.parametrize("damage", [b"garbage\n", b"\xff\xfe\n", b"{}\n"])
def test_a_line_that_is_no_event_is_a_change_too(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "h"
    history(path, ("promote", A, None))
    path.write_bytes(path.read_bytes() + damage)
    with pytest.raises(IntegrityError, match="was changed"):
        read_history(path)


def test_a_last_line_that_was_cut_is_a_change_too(tmp_path: Path) -> None:
    path = tmp_path / "h"
    history(path, ("promote", A, None), ("promote", B, A))
    path.write_text(path.read_text().removesuffix("\n"))
    with pytest.raises(IntegrityError, match="was changed at line 2"):
        read_history(path)


def test_a_release_promoted_twice_goes_back_to_the_one_between(tmp_path: Path) -> None:
    events = history(tmp_path / "h", ("promote", A, None), ("promote", B, A), ("promote", A, B))
    assert earlier_releases(events, A) == (B,)
