"""What was promoted and rolled back, in order; each line carries the hash of the one before it."""

import getpass
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from trtgate.errors import IntegrityError, UsageError
from trtgate.record import Record, read_text, sha256, write_atomic

START = "0" * 64


class Event(Record):
    """One change of what is in service."""

    sequence: int
    operation: Literal["promote", "rollback"]
    release: str  # the release that is in service from now on
    replaced: str | None  # the one that was in service before
    time: str
    who: str
    reason: str
    previous_sha256: str  # of the line before


def now() -> str:
    """The time as written everywhere: UTC, ISO 8601, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def who() -> str:
    """The person and the host that act."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def read_history(path: Path) -> tuple[Event, ...]:
    """All events; `IntegrityError` where the chain of hashes does not hold."""
    if not path.exists():
        return ()
    events = []
    previous = START
    for number, line in enumerate(_lines(path), 1):
        event = _event(line)
        if event is None or event.previous_sha256 != previous or event.sequence != number:
            raise IntegrityError(f"`{path}` was changed at line {number}", "restore it from a copy")
        previous = sha256(f"{line}\n".encode())
        events.append(event)
    return tuple(events)


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except UnicodeDecodeError as error:
        raise IntegrityError(
            f"`{path}` was changed: it is not a text file", "restore it from a copy"
        ) from error
    return [
        line.removesuffix("\n") if line.endswith("\n") else "" for line in lines
    ]  # a cut line is no event


def _event(line: str) -> Event | None:
    try:
        return Event.parse(line, "a line")
    except UsageError:
        return None


def append_event(
    path: Path, operation: Literal["promote", "rollback"], release: str, replaced: str | None, reason: str
) -> Event:
    """Add one event at the end, durably; returns it."""
    read_history(path)
    text = read_text(path) if path.exists() else ""
    lines = text.splitlines(keepends=True)
    event = Event(
        sequence=len(lines) + 1,
        operation=operation,
        release=release,
        replaced=replaced,
        time=now(),
        who=who(),
        reason=reason,
        previous_sha256=sha256(lines[-1].encode()) if lines else START,
    )
    write_atomic(path, (text + event.to_line()).encode())
    return event


def rolled_back_from(events: Sequence[Event]) -> frozenset[str]:
    """The releases that were gone back from and not promoted again since."""
    marked: set[str] = set()
    for event in events:
        if event.operation == "rollback" and event.replaced:
            marked.add(event.replaced)
        marked.discard(event.release)
    return frozenset(marked)


def earlier_releases(events: Sequence[Event], live: str) -> tuple[str, ...]:
    """What was in service before `live`, newest first, each once, without those gone back from."""
    marked = rolled_back_from(events)
    positions = [index for index, event in enumerate(events) if event.release == live]
    before = events[: positions[-1]] if positions else events
    found: dict[str, None] = {}
    for event in reversed(before):
        if event.release != live and event.release not in marked:
            found.setdefault(event.release)
    return tuple(found)
