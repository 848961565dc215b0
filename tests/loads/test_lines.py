"""Connections are opened ahead of need, kept while alive, and never used when about to be closed."""

import socket

import pytest

from trtgate.loads import lines as module
from trtgate.loads import run as run_module
from trtgate.loads.base import Ask, Target
from trtgate.loads.client import LineError, resolve
from trtgate.loads.clock import Clock
from trtgate.loads.lines import Lines, raise_file_limit
from trtgate.loads.poller import PollPoller, make_poller
from trtgate.loads.run import run_load


@pytest.fixture
def pool():
    """Connections to a listener that accepts by its backlog, and the means to wait for them."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listener:
        poller = make_poller()
        endpoint = resolve(Target(f"http://127.0.0.1:{listener.getsockname()[1]}", "m"))
        lines = Lines(endpoint, Clock(), poller, limit=3)
        yield lines, poller
        lines.close()
        poller.close()


def settle(lines, poller):
    for _ in range(100):
        for fd, _ in poller.wait(0.05):
            lines.by_fd[fd].advance()
            lines.settle(lines.by_fd[fd])
        if lines.stocked:
            return


def test_spare_connections_are_ready_when_taken(pool):
    lines, poller = pool
    lines.stock(2)
    settle(lines, poller)
    assert lines.take().ready
    assert lines.take().ready


def test_no_more_than_the_limit_are_open(pool):
    lines, _ = pool
    lines.stock(10)
    assert len(lines.by_fd) == 3
    assert lines.take() is None


def test_the_last_one_used_is_used_first(pool):
    lines, poller = pool
    first, second = lines.take(), lines.take()
    settle(lines, poller)
    lines.give(first)
    lines.give(second)
    assert lines.take() is second


def test_one_that_the_server_may_be_closing_is_replaced(pool, monkeypatch):
    lines, _ = pool
    old = lines.take()
    monkeypatch.setattr(module, "_USED_S", -1.0)
    lines.give(old)
    assert lines.take() is not old
    assert old.fd not in lines.by_fd or lines.by_fd[old.fd] is not old


def test_a_dropped_one_is_not_taken_again(pool):
    lines, _ = pool
    one = lines.take()
    lines.give(one)
    lines.drop(one)
    assert lines.take() is not one


def test_a_failed_spare_pauses_the_stocking(pool, monkeypatch):
    lines, _ = pool

    def fail(*_):
        raise LineError("too many open files")

    monkeypatch.setattr(module, "Line", fail)
    lines.stock(2)
    monkeypatch.undo()
    lines.stock(2)
    assert not lines.by_fd


def test_the_file_limit_is_never_lowered():
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_file_limit(1)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_a_system_without_epoll_does_the_same(server, wire, monkeypatch):
    monkeypatch.setattr(run_module, "make_poller", PollPoller)
    server.scripts = [[wire.stream(wire.token(), wire.usage(1), wire.done)]]
    result = run_load(server.target, [Ask(0.01 * place, (1,), 1) for place in range(3)], timeout_s=5.0)
    assert [answer.error for answer in result.answers] == [None] * 3


def test_a_request_larger_than_the_buffers_is_sent_in_parts(server, wire):
    server.scripts = [[wire.stream(wire.token(), wire.usage(1), wire.done)]]
    (answer,) = run_load(server.target, [Ask(0.0, "x" * 12_000_000, 1)], timeout_s=20.0).answers
    assert answer.error is None
    assert len(server.bodies[0]["prompt"]) == 12_000_000
