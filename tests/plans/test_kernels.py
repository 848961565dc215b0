"""The compiled loops: loaded late, and safe with numbers of any size."""

import subprocess
import sys

import pytest

from tests.plans.samples import curve
from trtgate.plans.costs import GraphMemory
from trtgate.plans.grid import Constraints, choose_grid
from trtgate.plans.histogram import Bins

REPLAY, EAGER = curve((1, 1.0), (16, 5.0)), curve((1, 6.0), (16, 6.5))


def choose(bins, **changes):
    limits = Constraints(**{"max_graphs": 4, "ceiling": 16, "tolerance": 0, **changes})
    memory = GraphMemory(largest_bytes_per_size=1, each_bytes=1)
    return choose_grid("decode", bins, None, REPLAY, EAGER, limits, memory=memory, capture_s=0)


def test_importing_the_planner_loads_no_compiler():
    script = "import sys, trtgate.plans.grid, trtgate.plans.simulate; print('trtgate.plans.kernels' in sys.modules)"
    call = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True)
    assert call.stdout == "False\n"


def test_counts_of_a_whole_fleet_and_year_do_not_overflow():
    small, large = (choose(Bins(low=(3, 9), high=(3, 9), steps=(3 * scale, scale))) for scale in (1, 10**15))
    assert small.buckets == large.buckets == (3, 9)
    assert large.row.step_ms == pytest.approx(small.row.step_ms)


def test_more_graphs_than_sizes_are_not_made():
    assert choose(Bins(low=(3,), high=(3,), steps=(5,))).buckets == (3,)


def test_no_graph_at_all_is_a_grid():
    plan = choose(Bins(low=(3,), high=(3,), steps=(5,)), max_graphs=0)
    assert plan.buckets == ()
    assert plan.reason.endswith("no bucket saves enough to be worth its graph")
