"""Processes that a test brought forth, told by parentage and start time; a name or a path says nothing."""

import ctypes
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker

import psutil

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that a daemon stays in the family (Linux)."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this kernel adopts no orphans")
    resource_tracker.ensure_running()  # Python's helper for spawned processes lives as long as we do: start it first


def family() -> set[psutil.Process]:
    """Every living descendant of this process; `psutil` compares them by number and start time."""
    return {child for child in psutil.Process().children(recursive=True) if _lives(child)}


@contextmanager
def leaves_nothing() -> Iterator[None]:
    """Fails where a process that was started within the block outlives it."""
    before = family()
    yield
    left = describe(family() - before)
    assert not left, "still running: " + "; ".join(left)


def ended(processes: Iterable[psutil.Process], within_s: float) -> list[str]:
    """Wait for processes, then kill those that still run; returns a line for each that had to be killed."""
    left = psutil.wait_procs(list(processes), timeout=within_s)[1]
    said = describe(left)
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=within_s)
    return said


def reap() -> None:
    """Take leave of every dead child, the adopted ones too, so that none is handed on as a zombie."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def describe(processes: Iterable[psutil.Process]) -> list[str]:
    """Number and command line of each, oldest first; one that has ended meanwhile is left out."""
    lines = []
    for process in sorted(processes, key=lambda process: (process.create_time(), process.pid)):
        try:
            lines.append(f"{process.pid}: {' '.join(process.cmdline())}")
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return lines


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
