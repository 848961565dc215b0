"""Workers of a Dask cluster give one result with one start; a worker that is lost takes nothing silently with it."""

import os
import signal
import sys
import time
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import Mock

import pytest

from trtgate import __version__
from trtgate.errors import TrtgateError, UsageError
from trtgate.loads import cluster as loads_cluster
from trtgate.loads.base import Ask, Target
from trtgate.loads.cluster import Order, _Cluster, _workers, lost_share, run_cluster, send_share
from trtgate.loads.offsets import WorkerClock, clock_faults, read_offset
from trtgate.loads.run import run_load
from trtgate.loads.validity import valid
from trtgate.loads.workers import Share, share_out

pytestmark = pytest.mark.timeout(60)  # starts clusters

NOWHERE = Target("http://127.0.0.1:9", "m")


@contextmanager
def two_workers():
    """Two worker processes, one thread each, on TCP."""
    distributed = pytest.importorskip("distributed")
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "protocol": "tcp://"}
    with distributed.LocalCluster(**settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def dask():
    with two_workers() as cluster:
        yield cluster


class Signals(dict):
    """Answers for `by_prompt`; signals a process when the first request that begins with 1 has come."""

    def __init__(self, answer, pid, number):
        super().__init__()
        self.answer, self.pid, self.number, self.sent = answer, pid, number, False

    def __bool__(self):
        return True

    def __missing__(self, first):
        if first != 1:
            return [self.answer]
        if not self.sent:
            self.sent = True
            os.kill(self.pid, self.number)
        return ["hang"]


def asks(count):
    return [Ask(0.0, (place, 7), 1) for place in range(count)]


def process_of(cluster, place):
    nannies = sorted(cluster.workers.values(), key=lambda nanny: nanny.worker_address)
    return nannies[place].pid


@pytest.mark.filterwarnings("ignore")
def test_all_workers_answer_on_one_clock_that_is_known_within_its_error(dask, server, wire):
    server.scripts = [[wire.stream(wire.token(), wire.done)]]
    run = run_cluster(server.target, asks(6), dask.scheduler_address, timeout_s=60.0)
    assert [(answer.index, answer.error) for answer in run.result.answers] == [(n, None) for n in range(6)]
    assert all(answer.sent_s >= answer.scheduled_s == 0.0 for answer in run.result.answers)
    assert [clock.asked for clock in run.clocks] == [3, 3]
    # All processes of a host share the monotonic clock, so the true offset is 0.
    assert all(abs(clock.offset_ms) <= clock.error_ms for clock in run.clocks)
    assert run.faults == ()


@pytest.mark.filterwarnings("ignore")
def test_a_worker_that_dies_leaves_its_requests_unfinished_and_the_run_invalid(server, wire):
    with two_workers() as cluster:
        answer = wire.stream(wire.token(), wire.done)
        server.by_prompt = Signals(answer, process_of(cluster, 1), signal.SIGKILL)
        run = run_cluster(server.target, asks(4), cluster.scheduler_address, timeout_s=60.0)
    assert [answer.error for answer in run.result.answers] == [None, "unfinished"] * 2
    (fault,) = run.faults
    assert fault == f"worker `{run.clocks[1].worker}` was lost: its 2 requests are unfinished"
    assert run.result.answers[1].detail == fault


@pytest.mark.usefixtures("default_signals")
@pytest.mark.filterwarnings("ignore")
def test_an_interrupt_ends_the_load_on_every_worker(dask, server):
    distributed = pytest.importorskip("distributed")
    server.by_prompt = Signals(b"", os.getpid(), signal.SIGINT)
    first = [Ask(0.0, (1, 7), 1), Ask(0.0, (1, 7), 1)]
    endless = first + [Ask(0.0, (1, 7), 1, after=place) for place in range(1000)]
    with pytest.raises(KeyboardInterrupt):
        run_cluster(server.target, endless, dask.scheduler_address, timeout_s=600.0)
    # A request hangs for 10 s, and a thousand follow: the one thread of a worker is free only if it was told.
    with distributed.Client(dask.scheduler_address, set_as_default=False) as client:
        free = [client.submit(abs, -1, workers=[worker], pure=False) for worker in client.nthreads()]
        assert [future.result(timeout=30) for future in free] == [1, 1]


@pytest.mark.filterwarnings("ignore")
def test_an_error_of_the_caller_comes_back_from_the_workers(dask):
    with pytest.raises(UsageError, match="text, not token ids"):
        run_cluster(replace(NOWHERE, path="/v1/chat/completions"), asks(2), dask.scheduler_address)


class Skewed:
    """Stands in for a Dask client: workers `a` and `b`, clocks ahead, each giving back `gives`, `...` for never."""

    def __init__(self, gives, ahead_ns=(0, 0), version=__version__, tasks=0):
        self.gives, self.ahead_ns, self.look = gives, dict(zip("ab", ahead_ns, strict=True)), (version, tasks)
        self.orders, self.cancelled = {}, []

    def nthreads(self):
        return {"a": 1, "b": 1}

    def scatter(self, data, **_options):
        return data

    def run(self, function, workers=("a", "b")):
        if function.__name__ == "_look":
            return dict.fromkeys(workers, self.look)
        return {worker: function() + self.ahead_ns[worker] for worker in workers}

    def submit(self, _function, _share, order, workers, **_options):
        self.orders[workers[0]] = order
        future = Future()
        if self.gives is ...:
            return future
        if isinstance(self.gives, BaseException):
            future.set_exception(self.gives)
        else:
            future.set_result(self.gives)
        return future

    def cancel(self, sent, **_options):
        self.cancelled = sent


def run_skewed(client):
    order = Order(NOWHERE, 1.0, 1, 1.0)
    return _Cluster(client, ["a", "b"], share_out(asks(4), 2)).run(order)


def test_the_start_is_one_moment_on_clocks_that_differ():
    pytest.importorskip("distributed")
    client = Skewed(None, ahead_ns=(5_000_000_000, -3_000_000_000))
    run = run_skewed(client)
    apart_ms = (client.orders["a"].start_ns - client.orders["b"].start_ns) / 1e6
    assert abs(apart_ms - 8000) <= sum(clock.error_ms for clock in run.clocks) + 1e-3
    assert len(client.cancelled) == 2


@pytest.mark.parametrize(
    ("gives", "said"), [(None, "was not ready at the start"), (OSError("gone"), "was lost")]
)
def test_a_worker_without_a_result_is_a_reason_for_invalid(gives, said):
    pytest.importorskip("distributed")
    run = run_skewed(Skewed(gives))
    assert run.faults == tuple(f"worker `{name}` {said}: its 2 requests are unfinished" for name in "ab")
    assert [answer.error for answer in run.result.answers] == ["unfinished"] * 4


def test_a_worker_that_the_scheduler_no_longer_knows_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(loads_cluster, "_LOOK_S", 0.001)
    client = Skewed(...)
    client.nthreads = dict
    assert [fault.split("`")[2] for fault in run_skewed(client).faults] == [
        " was lost: its 2 requests are unfinished"
    ] * 2


@pytest.mark.parametrize(
    ("look", "said"),
    [(("0.0", 0), "worker `a` has trtgate 0.0"), ((__version__, 3), "is at work on 3 tasks")],
)
def test_workers_of_another_version_or_at_work_are_refused(look, said):
    with pytest.raises(UsageError, match=said):
        _workers(Skewed(None, version=look[0], tasks=look[1]), "tcp://x")


def test_a_scheduler_that_is_lost_is_said_so():
    client = Skewed(None)
    client.nthreads = Mock(side_effect=OSError)
    with pytest.raises(TrtgateError, match="the Dask scheduler was lost"):
        _workers(client, "tcp://x")


@pytest.mark.filterwarnings("ignore")
def test_a_worker_with_other_work_is_refused(dask):
    distributed = pytest.importorskip("distributed")
    with distributed.Client(dask.scheduler_address, set_as_default=False) as client:
        begun, end = (distributed.Event(name, client=client) for name in ("begun", "end"))
        busy = client.submit(
            lambda: distributed.Event("begun").set() or distributed.Event("end").wait(60), pure=False
        )
        begun.wait(60)
        with pytest.raises(UsageError, match="is at work on 1 tasks"):
            run_cluster(NOWHERE, asks(2), dask.scheduler_address)
        end.set()
        assert busy.result(timeout=60)


def test_a_share_that_comes_after_its_start_is_not_sent():
    assert send_share(asks(1), Order(NOWHERE, 1.0, 1, 1.0, start_ns=time.monotonic_ns() - 1)) is None


def test_a_lost_share_counts_every_ask_and_knows_no_time():
    part = lost_share(Share((0, 2), (Ask(0.5, (1,), 4, tag="a"), Ask(1.0, (1,), 4, after=0))), "why", 9.0)
    assert [(answer.error, answer.tag, answer.detail) for answer in part.answers] == [
        ("unfinished", "a", "why"),
        ("unfinished", "", "why"),
    ]
    assert part.answers[0].scheduled_s == 0.5
    assert part.instrument.delivered == 0.0


def test_the_round_trip_with_the_least_delay_gives_offset_and_error():
    # Delays of 8, 2 and 6 ms; their clock is 1 s ahead, and is read half a way, at once and at the end.
    here = iter([0, 8_000_000, 10_000_000, 12_000_000, 20_000_000, 26_000_000])
    there = iter([1_004_000_000, 1_010_000_000, 1_026_000_000])
    offset_ms, error_ms = read_offset(lambda: next(there), here=lambda: next(here), trips=3)
    assert (offset_ms, error_ms) == (999.0, 1.0)


def test_a_clock_less_certain_than_requests_may_be_late_makes_the_run_invalid(server, wire):
    server.scripts = [[wire.stream(wire.token(), wire.done)]]
    result = run_load(server.target, asks(1), timeout_s=60.0)
    clocks = [clock(0.9), clock(1e9)]
    (fault,) = clock_faults(clocks, result, 0.10)
    assert fault.startswith("the clock of worker `tcp://w` is known to 1000000000.0 ms only, limit ")


def test_without_any_answer_a_clock_may_be_uncertain_by_a_millisecond():
    result = lost_share(Share((0,), tuple(asks(1))), "", 1.0)
    assert list(clock_faults([clock(1.0)], result, 0.10)) == []
    assert len(list(clock_faults([clock(1.1)], result, 0.10))) == 1
    assert valid(result, 0.10)


def clock(error_ms):
    return WorkerClock(worker="tcp://w", offset_ms=0.0, error_ms=error_ms, round_trips=16, asked=1)


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match="`distributed` is not installed") as caught:
        run_cluster(NOWHERE, asks(1), "tcp://127.0.0.1:9")
    assert caught.value.hint == "install `trtgate[cluster]`"


@pytest.mark.parametrize("scheme", ["tcp", "pigeon"])
@pytest.mark.filterwarnings("ignore")
def test_an_address_without_a_scheduler_is_refused(monkeypatch, closed_port, scheme):
    address = f"{scheme}://127.0.0.1:{closed_port}"
    pytest.importorskip("distributed")
    monkeypatch.setattr(loads_cluster, "_CONNECT_S", 0.2)
    with pytest.raises(UsageError, match=f"no Dask scheduler answers at `{address}`"):
        run_cluster(NOWHERE, asks(1), address)


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_without_workers_is_refused():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None, protocol="tcp://") as cluster,
        pytest.raises(UsageError, match="has no workers"),
    ):
        run_cluster(NOWHERE, asks(1), cluster.scheduler_address)
