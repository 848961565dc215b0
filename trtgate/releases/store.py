"""Sealed releases of one name: folders by digest, what is in service, and the history of changes."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from trtgate.errors import IntegrityError, LockedError, NotEligibleError, TrtgateError, UsageError
from trtgate.profile import Name
from trtgate.record import Record, flush_folder, sha256_file, write_atomic
from trtgate.releases.history import Event, append_event, now, read_history, who
from trtgate.releases.manifest import MANIFEST, Release

SHORT = 12
CURRENT, HISTORY, LOCK, HOLDER, INTENT = "current", "history.jsonl", ".lock", ".lock-holder", ".intent.json"
_DAMAGED = "do not use this release; restore it from a copy"


class Intent(Record):
    """A change that was begun; found again after a crash."""

    operation: Literal["promote", "rollback"]
    release: str
    replaced: str | None
    reason: str
    time: str
    who: str


@dataclass(frozen=True, slots=True)
class Store:
    """All releases of one deployment under `root/name`."""

    root: Path
    name: str

    @property
    def folder(self) -> Path:
        """Where the releases of this name are."""
        return self.root / self.name

    def release_folder(self, release_id: str) -> Path:
        """The sealed folder of one release."""
        return self.folder / release_id[:SHORT]

    def live(self) -> str | None:
        """The id of the release in service, or None; `IntegrityError` where the link points nowhere.

        A manifest that was changed does not change the id: it stays the one that was put in service.
        """
        link = self.folder / CURRENT
        if not link.is_symlink():
            return None
        target = self.folder / link.readlink()
        if not (target / MANIFEST).is_file():
            raise IntegrityError(
                f"`{link}` points to `{target.name}`, which is missing", "restore it from a copy"
            )
        found = sha256_file(target / MANIFEST)
        if found.startswith(target.name):
            return found
        for event in reversed(self.history()):
            if event.release.startswith(target.name):
                return event.release
        raise IntegrityError(
            f"`{target / MANIFEST}` was changed: it is not release `{target.name}`", _DAMAGED
        )

    def history(self) -> tuple[Event, ...]:
        """All changes of what is in service, oldest first."""
        return read_history(self.folder / HISTORY)

    def releases(self) -> tuple[tuple[str, Release], ...]:
        """Every sealed release whose manifest is whole, with its id, by version; no other file is verified."""
        found = []
        for path in self._manifests():
            release_id = sha256_file(path)
            if release_id.startswith(path.parent.name):
                found.append((release_id, Release.read(path)))
        return tuple(sorted(found, key=lambda item: item[1].version))

    def damaged(self) -> tuple[str, ...]:
        """The first characters of the releases whose manifest was changed."""
        return tuple(
            sorted(
                path.parent.name
                for path in self._manifests()
                if not sha256_file(path).startswith(path.parent.name)
            )
        )

    def _manifests(self) -> list[Path]:
        return [path for path in self.folder.glob(f"*/{MANIFEST}") if len(path.parent.name) == SHORT]

    def resolve(self, prefix: str) -> str:
        """The full id for its first characters; refuses what is unknown or not unique."""
        matches = [
            release_id for release_id, _release in self.releases() if release_id.startswith(prefix.lower())
        ]
        broken = [short for short in self.damaged() if short.startswith(prefix.lower()[:SHORT])]
        if broken and not matches:
            manifest = self.folder / broken[0] / MANIFEST
            raise IntegrityError(f"`{manifest}` was changed: it is not release `{broken[0]}`", _DAMAGED)
        if len(matches) != 1:
            what = "no release" if not matches else f"{len(matches)} releases"
            known = ", ".join(release_id[:SHORT] for release_id, _release in self.releases()) or "none"
            verb = "start" if matches else "starts"
            raise NotEligibleError(f"{what} of `{self.name}` {verb} with `{prefix}`", f"known: {known}")
        return matches[0]

    def manifest(self, release_id: str) -> Release:
        """The manifest of one release; `IntegrityError` where it is missing or was changed."""
        path = self.release_folder(release_id) / MANIFEST
        if not path.is_file():
            raise IntegrityError(f"`{path}` is missing", _DAMAGED)
        if sha256_file(path) != release_id:
            raise IntegrityError(f"`{path}` was changed: it is not release `{release_id[:SHORT]}`", _DAMAGED)
        return Release.read(path)

    def verify(self, release_id: str) -> Release:
        """Recompute every digest; `IntegrityError` names the first file that is missing, changed or not listed."""
        folder = self.release_folder(release_id)
        release = self.manifest(release_id)
        for name, digest in release.files.items():
            path = folder / name
            if not path.is_file():
                raise IntegrityError(f"`{path}` is missing", _DAMAGED)
            if sha256_file(path) != digest:
                raise IntegrityError(f"`{path}` was changed after it was sealed", _DAMAGED)
        listed = {*release.files, MANIFEST}
        for path in sorted(folder.rglob("*")):
            if path.is_file() and str(path.relative_to(folder)) not in listed:
                raise IntegrityError(f"`{path}` is not part of the release", _DAMAGED)
        return release

    def seal(self, release: Release, sources: dict[str, Path]) -> str:
        """Copy the files under a temporary name, check their digests, rename; returns the id."""
        self.folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=self.folder, prefix=".staging-"))
        try:
            for name, source in sources.items():
                target = staging / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
                flush_folder(target)
                if sha256_file(target) != release.files[name]:
                    raise IntegrityError(
                        f"`{source}` changed while it was sealed", "run `trtgate release` again"
                    )
            for inner in {(staging / name).parent for name in sources}:
                flush_folder(inner)
            release.write(staging / MANIFEST)
            staging.chmod(0o755)
            staging.replace(self.release_folder(release.release_id))
            flush_folder(self.folder)
        except OSError as error:
            raise TrtgateError(
                f"cannot seal into `{self.folder}`: {error.strerror}", "check rights and space"
            ) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return release.release_id

    def switch(self, operation: Literal["promote", "rollback"], release_id: str, reason: str) -> Event:
        """Put a release in service: intent, new link renamed over the old one, history, intent cleared."""
        self.history()  # refuses a damaged history before anything changes
        replaced = self.live()
        intent = Intent(
            operation=operation, release=release_id, replaced=replaced, reason=reason, time=now(), who=who()
        )
        intent.write(self.folder / INTENT)
        self._link(release_id)
        event = append_event(self.folder / HISTORY, operation, release_id, replaced, reason)
        (self.folder / INTENT).unlink()
        return event

    def resume(self) -> str | None:
        """Finish or forget a change that a crash cut short, by what `current` really says; returns what was done."""
        path = self.folder / INTENT
        if not path.is_file():
            return None
        try:
            intent = Intent.read(path)
        except UsageError as error:
            raise IntegrityError(
                f"`{path}` is damaged",
                f"if `trtgate release list {self.name}` shows the right release in service, remove the file",
            ) from error
        done = self.live() == intent.release
        events = self.history()
        recorded = (
            bool(events) and events[-1].release == intent.release and events[-1].operation == intent.operation
        )
        if done and not recorded:
            append_event(
                self.folder / HISTORY, intent.operation, intent.release, intent.replaced, intent.reason
            )
        path.unlink()
        outcome = "finished" if done else "had not begun, forgotten"
        return f"{intent.operation} of {intent.release[:SHORT]} from {intent.time}: {outcome}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the name exclusively; `LockedError` names the holder at once instead of waiting."""
        self.folder.mkdir(parents=True, exist_ok=True)
        holder = self.folder / HOLDER
        try:
            with FileLock(self.folder / LOCK, timeout=0):
                write_atomic(holder, f"{who()}, process {os.getpid()}, since {now()}".encode())
                try:
                    self._sweep()
                    yield
                finally:
                    holder.unlink(missing_ok=True)
        except Timeout:
            by = holder.read_text() if holder.is_file() else "another process"
            raise LockedError(
                f"`{self.name}` is held by {by}", "wait until it has ended, then try again"
            ) from None

    def _sweep(self) -> None:
        for leftover in self.folder.glob(".staging-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for leftover in (*self.folder.glob(".*.tmp"), self.folder / f".{CURRENT}.new"):
            leftover.unlink(missing_ok=True)

    def _link(self, release_id: str) -> None:
        fresh = self.folder / f".{CURRENT}.new"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(release_id[:SHORT])
        fresh.replace(self.folder / CURRENT)
        flush_folder(self.folder)


def open_store(root: Path, name: str) -> Store:
    """The store of a name that has releases; refuses one that has none."""
    try:
        TypeAdapter(Name).validate_python(name)  # it becomes a path
    except ValidationError as error:
        raise UsageError(
            f"`{name}` is no name of a deployment", "give the `name` that stands in its profile"
        ) from error
    store = Store(root, name)
    if not store.folder.is_dir():
        raise UsageError(
            f"no releases of `{name}` in `{root}`",
            "check `--store`, or run `trtgate release CANDIDATE` first",
        )
    return store
