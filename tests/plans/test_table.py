"""The table and the explanation: every figure in them is the one that the plan holds."""

import pytest

from tests.plans.samples import curve
from trtgate.plans.budget import KvBudget
from trtgate.plans.costs import GraphMemory
from trtgate.plans.grid import Constraints, choose_grid
from trtgate.plans.histogram import Bins
from trtgate.plans.table import as_text, explain, weigh_buckets

MEMORY = GraphMemory(largest_bytes_per_size=1 << 20, each_bytes=1 << 19)
KV = KvBudget(
    shared_bytes=100 << 20, kv_bytes_per_token=1 << 10, tokens_per_sequence=1000, tokens_per_block=1
)
REPLAY, EAGER = curve((1, 1.0), (16, 16.0)), curve((1, 6.0), (16, 9.0))
FIT = Bins(low=(1, 2, 4, 12), high=(1, 2, 4, 12), steps=(10, 10, 70, 10))


@pytest.fixture
def plan():
    limits = Constraints(max_graphs=2, ceiling=16, tolerance=0)
    return choose_grid("decode", FIT, FIT, REPLAY, EAGER, limits, memory=MEMORY, capture_s=0.5, kv=KV)


@pytest.fixture
def worths(plan):
    return weigh_buckets(plan, FIT, REPLAY, EAGER, memory=MEMORY, kv=KV)


def test_a_bucket_is_worth_what_its_steps_would_pay_without_it(plan, worths):
    assert plan.buckets == (2, 4)
    low, high = worths
    assert (low.lowest, low.share, low.padding, low.instead) == (1, 0.2, 40 / 30, 4)
    assert low.extra_ms == pytest.approx(0.2 * 2)
    assert high.instead == 0
    assert high.extra_ms == pytest.approx(0.7 * (float(EAGER.at(4)) - 4))


def test_removing_the_largest_bucket_frees_its_part_of_the_pool(worths):
    assert [worth.freed_bytes for worth in worths] == [1 << 19, (1 << 19) + (2 << 20)]
    assert [worth.freed_kv_tokens for worth in worths] == [512, 2560]


def test_the_explanation_names_each_bucket_what_lies_above_and_the_basis(plan, worths):
    lines = explain(plan, worths).splitlines()
    assert lines[0] == plan.reason
    assert lines[1] == (
        "2: 20.00% of steps (1..2), padding 1.333; without it they pad to 4: +0.4000 ms a step (+9.95%), "
        "frees 0.5 MiB = 512 KV tokens"
    )
    assert lines[3] == "above 4: 10.00% of steps (up to 12) run eagerly at 8.200 ms"
    assert lines[4] == "step times are measured"


def test_the_table_marks_the_chosen_and_the_pareto_rows(plan):
    lines = as_text(plan).splitlines()
    assert lines[0].split()[:3] == ["grid", "step", "ms"]
    assert lines[4].startswith(">*  2 buckets")
    assert lines[6].startswith(" *  eager")
    assert lines[7].startswith("  ! powers of two")
    assert lines[4].split()[-1] == str(plan.row.sequences)


def test_the_table_can_be_cut_to_the_rows_beside_the_chosen_one(plan):
    rows = [line for line in as_text(plan, around=0).splitlines() if "bucket" in line]
    assert [row.split()[0] for row in rows] == [">*"]


def test_the_table_fits_eighty_columns(plan):
    assert max(map(len, as_text(plan).splitlines())) <= 80
