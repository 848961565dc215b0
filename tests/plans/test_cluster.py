"""Many parts, one histogram: the same bytes from one process, several, and a cluster that loses a worker."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.plans.samples import costs
from trtgate.errors import TraceError, TrtgateError, UsageError
from trtgate.plans.cluster import Part, histogram_of, part_histogram
from trtgate.plans.histogram import Limits

pytestmark = pytest.mark.timeout(60)  # starts clusters

LIMITS = Limits(max_batch_size=4, max_num_tokens=16, max_seq_len=64)


@pytest.fixture
def parts(tmp_path):
    made = []
    for number in range(64):
        rows = [(index * 0.01, 1 + (number * index) % 30, 1 + (number + index) % 9) for index in range(1, 6)]
        path = tmp_path / f"part{number}.csv"
        path.write_text(
            "arrived_at,num_prefill_tokens,num_decode_tokens\n"
            + "".join(f"{a},{p},{o}\n" for a, p, o in rows)
        )
        made.append(Part(str(path), LIMITS, costs()))
    return made


def kills_its_worker_once(part):
    marker = Path(part.source).with_suffix(".tried")
    if "part31." in part.source and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return part_histogram(part)


def dies(part):
    os.kill(os.getpid(), signal.SIGKILL)


def test_parts_in_another_order_give_the_same_bytes(parts):
    assert histogram_of(parts).to_json() == histogram_of(parts[::-1]).to_json()


def test_local_processes_give_the_same_bytes(parts):
    assert histogram_of(parts[:4], processes=2).to_json() == histogram_of(parts[:4]).to_json()


def test_a_local_process_that_dies_ends_in_one_clear_error(parts):
    with pytest.raises(TrtgateError, match="a local process died"):
        histogram_of(parts[:2], processes=2, make=dies)


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_loses_a_worker_gives_the_same_bytes(parts):
    distributed = pytest.importorskip("distributed")
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "protocol": "tcp://"}
    with distributed.LocalCluster(**settings) as cluster:
        held = histogram_of(parts, cluster=cluster.scheduler_address, make=kills_its_worker_once)
    assert Path(parts[31].source).with_suffix(".tried").exists()
    assert held.to_json() == histogram_of(parts).to_json()


def test_requests_of_every_part_are_counted(parts):
    held = histogram_of(parts)
    assert (held.requests, len(held.sources)) == (320, 64)


def test_a_url_is_read_where_the_part_is_worked_on(parts):
    pytest.importorskip("fsspec")
    there = replace(parts[3], source=f"file://{parts[3].source}")
    assert part_histogram(there) == part_histogram(parts[3])


@pytest.mark.parametrize("source", ["memory://nowhere/part.csv", "carrier-pigeon://part.csv"])
def test_a_url_that_leads_nowhere_is_named(parts, source):
    pytest.importorskip("fsspec")
    with pytest.raises(TraceError, match=source):
        part_histogram(replace(parts[3], source=source))


def test_iterations_are_counted_and_not_simulated(tmp_path):
    rows = [
        {
            "iter": 1,
            "inflightBatchingStats": {"numContextRequests": 0, "numGenRequests": 3, "numCtxTokens": 0},
        }
    ]
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(rows))
    held = part_histogram(Part(str(path), LIMITS, costs()))
    assert (held.origin, held.decode.low, held.decode.steps) == ("recorded", (3,), (1,))


def test_a_part_that_cannot_be_read_says_which(parts, tmp_path):
    with pytest.raises(TraceError, match="missing"):
        histogram_of([replace(parts[0], source=str(tmp_path / "missing.csv"))])


def test_no_parts_are_refused():
    with pytest.raises(UsageError, match="no parts"):
        histogram_of([])
