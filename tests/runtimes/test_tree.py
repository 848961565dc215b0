"""Finding and ending processes: by descent, by mark, by the log they write to; never a stranger."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from trtgate.runtimes.tree import MARK, Member, Tree, end, everybody, is_alive, marked, member, send

WAITER = "import sys; sys.stdin.read()"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits, under the mark `abc`."""
    command = [sys.executable, "-c", WAITER]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, MARK: "abc"})
    yield process
    process.kill()
    process.communicate()


def test_process_is_found_by_its_mark(child):
    while not marked("abc", 0, everybody()):
        pass  # between fork and exec it still has our environment
    assert {process.pid for process in marked("abc", 0, everybody())} == {child.pid}
    assert marked("ab", 0, everybody()) == set()


def test_writer_of_the_log_is_found_and_its_reader_is_not():
    source, sink = os.pipe()
    inode = os.fstat(source).st_ino
    command = [sys.executable, "-c", WAITER]
    reader = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[source])
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sink)
    try:
        assert {process.pid for process in marked("none", inode, everybody())} == {writer.pid}
    finally:
        for process in (reader, writer):
            process.kill()
            process.communicate()
        os.close(source)
        os.close(sink)


def test_children_are_followed_and_strangers_are_not(child):
    own = member(os.getpid())
    tree = Tree(own, "none", 0)
    assert tree.refresh()
    assert member(child.pid) in tree.members()
    assert member(1) not in tree.members()


def test_number_that_was_given_to_another_process_is_not_followed(child):
    own = member(os.getpid())
    tree = Tree(Member(own.pid, own.start_ticks - 1), "none", 0)
    assert not tree.refresh()
    assert tree.alive() == ()


def test_signal_reaches_exactly_the_process_that_was_meant(child):
    real = member(child.pid)
    send(Member(real.pid, real.start_ticks + 1), signal.SIGKILL)
    assert is_alive(real)
    send(real, signal.SIGKILL)
    assert child.wait(10) == -signal.SIGKILL


def test_process_that_one_look_missed_is_ended_all_the_same(child):
    real = member(child.pid)
    looks = iter([(), ()])
    assert end(lambda: next(looks, (real,) if is_alive(real) else ()), None, 0.0, child.poll) == ()
    assert child.wait(10) == -signal.SIGKILL


def test_process_that_has_ended_is_nobody(child):
    real = member(child.pid)
    child.kill()
    child.wait(10)
    assert not is_alive(real)
    assert end(lambda: (), None, 1.0) == ()
