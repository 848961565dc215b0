"""The choice of buckets, held against all grids there are, and the table around it."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plans.samples import best_by_hand, cost_by_hand, curve
from trtgate.errors import UsageError
from trtgate.plans.budget import KvBudget
from trtgate.plans.costs import GraphMemory
from trtgate.plans.grid import Constraints, choose_grid, powers_of_two
from trtgate.plans.histogram import Bins

MEMORY = GraphMemory(base_bytes=5, largest_bytes_per_size=10, each_bytes=3)
REPLAY, EAGER = curve((1, 1.0), (16, 5.0)), curve((1, 6.0), (16, 6.5))


def bins(steps):
    sizes = tuple(sorted(steps))
    return Bins(low=sizes, high=sizes, steps=tuple(steps[size] for size in sizes))


def choose(steps, *, held_out=None, replay=REPLAY, eager=EAGER, kv=None, alternatives=None, **changes):
    settings = {"max_graphs": 4, "ceiling": 16, "tolerance": 0, **changes}
    later = bins(held_out) if held_out else None
    return choose_grid(
        "decode",
        bins(steps),
        later,
        replay,
        eager,
        Constraints(**settings),
        memory=MEMORY,
        capture_s=0.5,
        kv=kv,
        alternatives=alternatives,
    )


def curves(falling):
    times = st.lists(st.integers(1, 40), min_size=1, max_size=5)
    sizes = st.lists(st.integers(1, 14), min_size=5, max_size=5, unique=True)
    return st.tuples(sizes, times).map(
        lambda drawn: curve(
            *zip(
                sorted(drawn[0]),
                [float(ms) for ms in (drawn[1] if falling else sorted(drawn[1]))],
                strict=False,
            )
        )
    )


HISTOGRAMS = st.dictionaries(st.integers(1, 14), st.integers(1, 9), min_size=1, max_size=7)


@settings(max_examples=200, deadline=None)
@given(HISTOGRAMS, curves(falling=False), curves(falling=False), st.integers(0, 4))
def test_no_other_grid_is_cheaper_and_ties_go_to_fewer_then_smaller_buckets(steps, replay, eager, most):
    plan = choose(steps, replay=replay, eager=eager, max_graphs=most, ceiling=14)
    assert plan.buckets == best_by_hand(bins(steps), sorted({*steps, 14}), replay, eager, most)


@settings(max_examples=200, deadline=None)
@given(HISTOGRAMS, curves(falling=True), curves(falling=True), st.integers(0, 3))
def test_no_grid_of_any_sizes_is_cheaper_where_curves_fall_too(steps, replay, eager, most):
    plan = choose(steps, replay=replay, eager=eager, max_graphs=most, ceiling=14)
    best = best_by_hand(bins(steps), range(1, 15), replay, eager, most)
    least = cost_by_hand(bins(steps), best, replay, eager)
    assert cost_by_hand(bins(steps), plan.buckets, replay, eager) <= least + plan.row.coverage * sum(
        steps.values()
    )


@settings(max_examples=200, deadline=None)
@given(HISTOGRAMS, curves(falling=True), st.sets(st.integers(1, 14), max_size=2), st.integers(0, 200))
def test_no_grid_with_the_pinned_sizes_inside_the_memory_is_cheaper(steps, replay, pinned, budget):
    grid = {"max_graphs": 3, "ceiling": 14, "pinned": tuple(pinned), "graph_memory_bytes": budget}
    if MEMORY.of(len(pinned), max(pinned, default=0)) > budget:
        with pytest.raises(UsageError, match="pinned"):
            choose(steps, replay=replay, **grid)
        return
    plan = choose(steps, replay=replay, **grid)
    allowed = [
        row
        for row in all_grids(3)
        if pinned <= set(row) and MEMORY.of(len(row), max(row, default=0)) <= budget
    ]
    least = min(cost_by_hand(bins(steps), row, replay, EAGER) for row in allowed)
    assert cost_by_hand(bins(steps), plan.buckets, replay, EAGER) <= least + sum(steps.values())
    assert plan.row.graph_bytes <= budget
    assert pinned <= set(plan.buckets)


def all_grids(most):
    grids = [()]
    for size in range(1, 15):
        grids += [(*grid, size) for grid in grids if len(grid) < most]
    return grids


def test_nine_requests_in_flight_get_a_bucket_of_nine():
    assert 9 in choose({9: 80, 4: 10, 16: 10}).buckets


def test_rows_get_faster_with_each_bucket():
    rows = choose({size: size for size in range(1, 17)}).rows
    assert [len(row.buckets) for row in rows] == [0, 1, 2, 3, 4]
    assert all(b.step_ms < a.step_ms for a, b in pairwise(rows))


def test_a_row_counts_coverage_padding_memory_and_capture_time():
    row = choose({2: 1, 3: 2, 12: 1}, max_graphs=1, pinned=(3,), ceiling=3).row
    assert (row.coverage, row.padding, row.graph_bytes, row.capture_s) == (0.75, 9 / 8, 5 + 30 + 3, 0.5)


def test_the_smallest_grid_within_the_tolerance_is_chosen():
    steps = {size: 100 if size < 4 else 1 for size in range(1, 17)}
    assert len(choose(steps, tolerance=0.2).buckets) < len(choose(steps, tolerance=0).buckets)


def test_buckets_above_the_size_that_pays_are_left_out():
    plan = choose({1: 10, 16: 10}, replay=curve((1, 1.0), (16, 16.0)), eager=curve((1, 6.0), (16, 9.0)))
    assert plan.buckets == (1,)
    assert (plan.above.share, plan.above.step_ms, plan.above.largest_size) == (0.5, 9.0, 16)


def test_aligned_buckets_are_multiples_or_the_ceiling():
    plan = choose({3: 5, 9: 5, 14: 5}, alignment=4, ceiling=14)
    assert plan.buckets == (4, 12, 14)


def test_a_capture_time_budget_limits_the_number_of_graphs():
    plan = choose(dict.fromkeys(range(1, 17), 1), capture_s=1.0)
    assert len(plan.buckets) == 2


def test_sizes_above_the_ceiling_run_eagerly():
    plan = choose({2: 1, 20: 1}, ceiling=8)
    assert (plan.buckets, plan.row.step_ms) == ((2,), pytest.approx((REPLAY.at(2) + EAGER.at(20)) / 2))


def test_no_capture_time_leaves_eager():
    assert choose({3: 5}, capture_s=0.0).buckets == ()


def test_the_other_kind_of_graph_gets_what_is_left():
    row = choose({3: 5}).row
    whole = Constraints(max_graphs=4, ceiling=16, graph_memory_bytes=100, capture_s=2.0)
    left = whole.beside(row)
    assert (left.graph_memory_bytes, left.capture_s) == (100 - row.graph_bytes, 1.5)
    assert Constraints(max_graphs=4, ceiling=16).beside(row).graph_memory_bytes is None
    kv = KvBudget(shared_bytes=1000, kv_bytes_per_token=1, tokens_per_sequence=100)
    assert kv.beside(row.graph_bytes).tokens(0) == kv.tokens(row.graph_bytes)


def test_kv_tokens_and_sequences_shrink_with_the_graphs():
    kv = KvBudget(shared_bytes=1000, kv_bytes_per_token=1, tokens_per_sequence=100, tokens_per_block=1)
    rows = choose(dict.fromkeys(range(1, 17), 1), kv=kv).rows
    assert (rows[0].kv_tokens, rows[0].sequences) == (1000, 10)
    assert all(row.kv_tokens == 1000 - row.graph_bytes for row in rows)


def test_a_later_part_is_judged_with_the_buckets_of_the_earlier_part():
    plan = choose({4: 3}, held_out={3: 1, 8: 1})
    row = plan.row
    assert (plan.buckets, row.held_out_coverage, row.held_out_padding) == ((4,), 0.5, 4 / 3)
    assert row.held_out_step_ms == pytest.approx((REPLAY.at(4) + EAGER.at(8)) / 2)


def test_alternatives_stand_beside_the_choice_under_the_same_costs():
    plan = choose({3: 5, 9: 5}, alternatives={"runtime default": (8, 16)})
    assert [row.name for row in plan.alternatives] == ["eager", "runtime default", "powers of two"]
    assert plan.alternatives[1].step_ms == pytest.approx((REPLAY.at(8) + REPLAY.at(16)) / 2)
    assert not plan.alternatives[2].fits


def test_a_row_that_costs_more_time_and_more_memory_is_not_marked():
    plan = choose({3: 5, 9: 5}, alternatives={"wasteful": (3, 9, 16)})
    assert plan.row.pareto
    assert not plan.alternatives[1].pareto


def test_inexact_bins_count_at_their_upper_ends_and_say_how_far_the_truth_may_lie():
    steps = Bins(low=(1, 5), high=(4, 8), steps=(1, 1))
    grid = Constraints(max_graphs=2, ceiling=16, tolerance=0, pinned=(2, 8))
    plan = choose_grid("decode", steps, None, REPLAY, EAGER, grid, memory=MEMORY, capture_s=0)
    assert plan.row.step_ms == pytest.approx(REPLAY.at(8))
    two, eight = REPLAY.at([2, 8]).tolist()
    assert plan.step_range_ms == pytest.approx(((two + eight) / 2, eight))


def test_a_histogram_without_steps_has_no_grid():
    with pytest.raises(UsageError, match="no decode steps"):
        choose({})


def test_a_plan_is_only_as_good_as_its_weaker_curve():
    assert choose({3: 5}, eager=curve((1, 6.0), basis="prior")).basis == "prior"
    assert choose({3: 5}).basis == "measured"


@pytest.mark.parametrize(
    "changes", [{"pinned": (17,)}, {"pinned": (0,)}, {"pinned": (1, 2), "max_graphs": 1}]
)
def test_pins_that_cannot_be_held_are_refused(changes):
    with pytest.raises(ValueError, match="pinned sizes"):
        choose({3: 5}, **changes)


def test_powers_of_two_end_at_the_ceiling_itself():
    assert [powers_of_two(size) for size in (1, 2, 3, 8, 12)] == [
        (1,),
        (1, 2),
        (1, 2, 3),
        (1, 2, 4, 8),
        (1, 2, 4, 8, 12),
    ]


def test_sizes_beyond_the_last_measured_point_are_named():
    assert choose({3: 5, 16: 5}).extrapolated_above is None
    assert choose({3: 5, 16: 5}, eager=curve((1, 6.0), (8, 6.5))).extrapolated_above == 8
    assert choose({3: 5, 16: 5}, ceiling=8, replay=curve((1, 1.0), (8, 2.0))).extrapolated_above is None
