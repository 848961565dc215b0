"""Histograms: exact counts, and sums that do not depend on how the input was cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plans.samples import source
from trtgate.errors import UsageError
from trtgate.plans.histogram import Bins, Histogram, from_ranges, from_steps, merge
from trtgate.traces.base import Ranges, Steps


def recorded(sizes, decode, kept=None, **changes):
    count = len(sizes)
    return Steps(
        iteration=np.arange(count),
        rank=np.zeros(count, np.int16),
        decode=np.asarray(decode, np.bool_),
        size=np.asarray(sizes, np.int32),
        padded=np.zeros(count, np.int32),
        step_ms=np.full(count, np.nan, np.float32),
        sources=(source(kept=count if kept is None else kept, **changes),),
    )


STEPS = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=20)


@settings(max_examples=100, deadline=None)
@given(STEPS, st.lists(st.integers(0, 3), min_size=20, max_size=20), st.randoms(use_true_random=False))
def test_any_partition_in_any_order_merges_to_the_same_bytes(rows, part_of, shuffler):
    whole = from_steps(recorded(*zip(*rows, strict=True)))
    groups = [[row for row, part in zip(rows, part_of, strict=False) if part == which] for which in range(4)]
    parts = [from_steps(recorded(*zip(*group, strict=True))) for group in groups if group]
    shuffler.shuffle(parts)
    nested = merge(merge(*parts[:2]), *parts[2:])
    assert nested.to_json() == merge(whole).to_json() == whole.to_json()


def test_steps_are_counted_by_kind_and_idle_ones_left_out():
    histogram = from_steps(recorded([3, 0, 3, 700], [True, True, True, False]))
    assert (histogram.decode, histogram.tokens) == (
        Bins(low=(3,), high=(3,), steps=(2,)),
        Bins(low=(700,), high=(700,), steps=(1,)),
    )


def test_parts_of_one_file_become_one_source_and_other_files_stay_apart():
    steps = [
        recorded([1], [True], name=name, notes=(note,)) for name, note in (("a", "y"), ("b", "z"), ("a", "x"))
    ]
    merged = merge(*(from_steps(part) for part in steps))
    assert [(held.name, held.read, held.notes) for held in merged.sources] == [
        ("a", 2, ("x", "y")),
        ("b", 1, ("z",)),
    ]


def test_simulated_and_recorded_parts_are_called_mixed():
    parts = [
        Histogram(decode=Bins(), tokens=Bins(), sources=(), origin=name) for name in ("simulated", "recorded")
    ]
    assert merge(*parts).origin == "mixed"


def test_the_longest_drain_is_kept():
    parts = [
        Histogram(decode=Bins(), tokens=Bins(), sources=(), origin="simulated", drain_s=drain_s)
        for drain_s in (None, 2.5, 1.0)
    ]
    assert (merge(*parts).drain_s, merge(parts[0]).drain_s) == (2.5, None)


def test_refused_requests_add_up_by_reason():
    parts = [
        Histogram(decode=Bins(), tokens=Bins(), sources=(), origin="simulated", requests=3, refused=refused)
        for refused in ({"b": 1}, {"a": 2, "b": 4})
    ]
    assert (merge(*parts).refused, merge(*parts).requests) == ({"a": 2, "b": 5}, 6)


def test_nothing_cannot_be_merged():
    with pytest.raises(UsageError, match="no histograms"):
        merge()


def test_ranges_keep_their_ends_and_open_ones_reach_to_the_ceiling():
    ranges = Ranges(
        metric="iteration_tokens",
        low=np.array([-np.inf, 1, 8, 512]),
        high=np.array([1, 8, 512, np.inf]),
        count=np.array([5, 2, 0, 1]),
        total=np.nan,
        sources=(source(),),
    )
    held = from_ranges(ranges, "tokens", 2048).tokens
    assert held == Bins(low=(1, 2, 513), high=(1, 8, 2048), steps=(5, 2, 1))
    assert not held.exact


@pytest.mark.parametrize(
    "fields",
    [
        {"low": (2,), "high": (1,), "steps": (1,)},
        {"low": (0,), "high": (1,), "steps": (1,)},
        {"low": (1, 1), "high": (1, 1), "steps": (1, 1)},
        {"low": (1,), "high": (1,), "steps": (0,)},
        {"low": (1,), "high": (1,), "steps": ()},
    ],
)
def test_bins_that_make_no_sense_are_refused(fields):
    with pytest.raises(ValueError, match="bins"):
        Bins(**fields)


def test_quantiles_are_sizes_that_occur():
    held = Bins(low=(1, 5, 9), high=(1, 5, 9), steps=(90, 9, 1))
    assert [held.quantile(share) for share in (0.5, 0.9, 0.95, 1.0)] == [1, 1, 5, 9]
    assert Bins().quantile(0.5) == 0


def test_a_histogram_comes_back_from_disk_as_it_was(tmp_path):
    histogram = from_steps(recorded([3, 3, 700], [True, True, False]))
    histogram.write(tmp_path / "histogram.json")
    assert Histogram.read(tmp_path / "histogram.json") == histogram
