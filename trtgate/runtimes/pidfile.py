"""Remembers on disk what was started, so that the next start ends what a killed trtgate left running."""

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from trtgate.errors import TrtgateError
from trtgate.runtimes.tree import Member, end, everybody, is_alive, marked, member

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def folder() -> Path:
    """The per-user folder of these files, made if missing; refuses one that belongs to somebody else."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(base) / "trtgate" if base else Path(tempfile.gettempdir()) / f"trtgate-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = path.lstat()
    except OSError as error:
        raise TrtgateError(f"cannot make `{path}`: {error.strerror}", "set `XDG_RUNTIME_DIR`") from error
    if owner.st_uid != os.getuid() or path.is_symlink():
        raise TrtgateError(
            f"`{path}` belongs to somebody else", "set `XDG_RUNTIME_DIR` to a folder of your own"
        )
    return path


class PidFile:
    """The file of one run: who started it, and which processes it has; written before the first of them."""

    def __init__(self, run: str) -> None:
        self.path = folder() / f"{run}.json"

    def write(self, members: Iterable[Member], pipe: int) -> None:
        """Replace the file as a whole; `pipe` is the inode of the pipe that the run's output goes through."""
        owner = member(os.getpid())
        data = {
            "boot": _boot(),
            "namespace": _namespace(),
            "pipe": pipe,
            "owner": None if owner is None else [owner.pid, owner.start_ticks],
            "members": [[process.pid, process.start_ticks] for process in members],
        }
        draft = self._draft()
        draft.write_text(json.dumps(data), encoding="utf-8")
        draft.replace(self.path)

    def remove(self) -> None:
        """Forget the run."""
        self._draft().unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def _draft(self) -> Path:
        return self.path.with_suffix(f".{os.getpid()}.tmp")


def clean_leftovers(deadline_s: float = 2.0) -> int:
    """End what runs of a dead trtgate left, and remove their files; returns how many processes were ended.

    A process is known by number and start, by the mark in its environment or by its log; never by its name.
    """
    ended = 0
    for path in sorted(folder().glob("*.json")):
        data = _read(path)
        same_boot = data.get("boot") == _boot()
        if same_boot and data.get("namespace") != _namespace():
            continue  # of another container, whose numbers mean nothing here
        if same_boot and any(is_alive(process) for process in _members([data.get("owner")])):
            continue
        known, pipe = (_members(data.get("members")), data.get("pipe")) if same_boot else ([], 0)
        ended += _end_run(path.stem, pipe if isinstance(pipe, int) else 0, known, deadline_s)
        path.unlink(missing_ok=True)
    for path in folder().glob("*.tmp"):
        writer = path.stem.rpartition(".")[2]
        if not writer.isdigit() or member(int(writer)) is None:
            path.unlink(missing_ok=True)
    return ended


def _end_run(run: str, pipe: int, known: list[Member], deadline_s: float) -> int:
    def find() -> tuple[Member, ...]:
        carriers = marked(run, pipe, everybody())
        return tuple({process for process in (*known, *carriers) if is_alive(process)})

    count = len(find())
    left = end(find, None, deadline_s)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise TrtgateError(f"processes of an earlier run cannot be ended: {pids}", "end them and try again")
    return count


def _read(path: Path) -> dict[str, object]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # the mark in the environment still finds its processes
    return data if isinstance(data, dict) else {}


def _members(pairs: object) -> list[Member]:
    if not isinstance(pairs, list):
        return []
    return [Member(*map(int, pair)) for pair in pairs if isinstance(pair, list) and len(pair) == 2]


def _boot() -> str:
    try:
        return _BOOT.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
