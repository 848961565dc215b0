"""All processes of one start, found by descent, by a mark in their environment and by the log they write to."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

MARK = "TRTGATE_RUN"
_PROC = Path("/proc")
QUIET_LOOKS = 3  # one look can miss a process whose parent forks and exits while it is taken


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """One process, told apart from a later one under the same number by its start in ticks since boot."""

    pid: int
    start_ticks: int


def member(pid: int) -> Member | None:
    """The process under a number now; `None` for none or a zombie."""
    found = _stat(pid)
    return None if found is None else found[1]


def _stat(pid: int) -> tuple[int, Member] | None:
    """Parent and identity of a living process. Source: `proc(5)`, fields 3, 4 and 22 of `stat`."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    gone = fields[0] in {"Z", "X"} and _threads(pid) <= 1
    return None if gone else (int(fields[1]), Member(pid, int(fields[19])))


def _threads(pid: int) -> int:
    """Threads of a process: a dead first thread is a zombie while others still hold memory and ports."""
    try:
        return sum(1 for _ in (_PROC / str(pid) / "task").iterdir())
    except OSError:
        return 0


def is_alive(process: Member) -> bool:
    """Whether exactly this process still runs."""
    return member(process.pid) == process


class Tree:
    """The processes that one start brought forth; grows with every `refresh` and forgets none."""

    def __init__(self, root: Member | None, run: str, pipe: int) -> None:
        self._run, self._pipe = run, pipe
        self._known: set[Member] = set() if root is None else {root}
        self._lock = threading.Lock()

    def refresh(self, *, deep: bool = False) -> bool:
        """Add what the known processes started; `deep` looks for marks too. Returns if any is new.

        Everything is taken from one look, so that a number that was given to a stranger meanwhile is not followed.
        """
        seen = _look()
        with self._lock:
            before = len(self._known)
            self._known |= _descendants(self._known, seen)
            if deep:
                self._known |= marked(self._run, self._pipe, {found for _, found in seen.values()})
            return len(self._known) > before

    def members(self) -> tuple[Member, ...]:
        """All processes seen so far, dead ones included."""
        with self._lock:
            return tuple(sorted(self._known))

    def alive(self) -> tuple[Member, ...]:
        """Those that still run."""
        return tuple(process for process in self.members() if is_alive(process))

    def memory_bytes(self) -> int:
        """Resident memory of all of them, in bytes."""
        return sum(_resident(process.pid) for process in self.alive())


def marked(run: str, pipe: int, among: Iterable[Member]) -> set[Member]:
    """The processes whose environment carries the mark of a run, or that can write to its log (an inode, 0: none)."""
    needle, own = f"{MARK}={run}".encode(), os.getpid()
    return {
        process
        for process in among
        if process.pid != own
        and (_carries(process.pid, needle) or (pipe and _writes_to(process.pid, pipe)))
        and is_alive(process)
    }


def _carries(pid: int, needle: bytes) -> bool:
    try:
        return needle in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _writes_to(pid: int, pipe: int) -> bool:
    """Whether a process holds the end of a pipe that is written to; the link's mode tells. Source: `proc(5)`."""
    name = f"pipe:[{pipe}]"
    try:
        links = list((_PROC / str(pid) / "fd").iterdir())
    except OSError:
        return False
    for link in links:
        try:
            if str(link.readlink()) == name and link.lstat().st_mode & 0o200:
                return True
        except OSError:
            continue
    return False


def end(
    find: Callable[[], tuple[Member, ...]],
    root: Member | None,
    deadline_s: float,
    reap: Callable[[], object] = lambda: None,
) -> tuple[Member, ...]:
    """Ask `root` to end, then the rest, then kill all that `find` returns; what even that left is returned.

    `reap` is called between looks, so that a dead child does not stay as a zombie.
    """
    limit, quiet, asked = time.monotonic() + deadline_s, 0, False
    if root is not None:
        send(root, signal.SIGTERM)
    while quiet < QUIET_LOOKS and time.monotonic() < limit:
        reap()
        left = find()
        quiet = 0 if left else quiet + 1
        if left and not asked and (root is None or not is_alive(root)):
            asked, limit = True, min(limit, time.monotonic() + 5.0)
            for process in left:
                send(process, signal.SIGTERM)
        time.sleep(0.02)
    return () if quiet >= QUIET_LOOKS else _kill(find, reap)


def _kill(find: Callable[[], tuple[Member, ...]], reap: Callable[[], object]) -> tuple[Member, ...]:
    limit, quiet = time.monotonic() + 10.0, 0
    while True:
        left = find()
        for process in left:
            send(process, signal.SIGKILL)
        reap()
        quiet = 0 if left else quiet + 1
        if quiet >= QUIET_LOOKS or time.monotonic() > limit:
            return left
        time.sleep(0.02)


def send(process: Member, number: signal.Signals) -> None:
    """Send a signal to exactly this process, if it still runs."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        if is_alive(process):  # checked while the handle pins the number
            signal.pidfd_send_signal(handle, number)
    except OSError:
        return
    finally:
        os.close(handle)


def everybody() -> set[Member]:
    """All processes that can be seen."""
    return {found for _, found in _look().values()}


def _look() -> dict[int, tuple[int, Member]]:
    numbers = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
    return {pid: found for pid in numbers if (found := _stat(pid)) is not None}


def _descendants(known: set[Member], seen: dict[int, tuple[int, Member]]) -> set[Member]:
    children: dict[int, list[Member]] = {}
    for parent, process in seen.values():
        children.setdefault(parent, []).append(process)
    todo = [process for process in known if seen.get(process.pid, (0, None))[1] == process]
    found = set(todo)
    while todo:
        new = [process for process in children.get(todo.pop().pid, ()) if process not in found]
        found.update(new)
        todo.extend(new)
    return found


def _resident(pid: int) -> int:
    try:
        fields = (_PROC / str(pid) / "statm").read_text(encoding="utf-8").split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
