import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtgate.verdicts.looks import difference_series, estimate, metric_series, walk
from trtgate.verdicts.stats import student_t_quantile

LOOKS = (6, 8, 10, 12)
LEVEL = 0.0218


def series(name, d):
    return difference_series(name, np.array(d, dtype=float), 0.1)


def go(*found, pairs=None, stop=True):
    return walk(found, LOOKS, pairs or len(found[0].d), 0.05, m=len(found), stop=stop)


def test_the_margin_is_relative_or_the_floor_whichever_is_more():
    found = metric_series("x", np.array([4.0, 9.0, 500.0]), np.array([4.0, 9.9, 500.0]), (0.10, 1.0))
    assert found.deltas == pytest.approx(np.log([1.25, 1 + 1 / 6, 1.10]))
    assert found.d == pytest.approx([0, math.log(1.1), 0])


def test_the_timer_bounds_the_confidence_in_tiny_latencies():
    found = metric_series("x", np.array([0.05, 0.05]), np.array([0.05, 0.05]), (0.10, 0.0))
    assert found.floors == pytest.approx([0.02, 0.02])


@settings(max_examples=60)
@given(st.lists(st.floats(-0.3, 0.3), min_size=6, max_size=6), st.integers(1, 7))
def test_bounds_and_delta_decide_as_the_formulas_say(d, m):
    found = estimate(series("a", d), 6, LEVEL, m, 0.05)
    se = max(float(np.std(d, ddof=1)), 0.001) / math.sqrt(6)
    assert found.passed == (np.mean(d) + student_t_quantile(1 - LEVEL, 5) * se < 0.1)
    assert found.lower == pytest.approx(np.mean(d) - student_t_quantile(1 - LEVEL / m, 5) * se)
    assert found.likely_worse == (np.mean(d) >= 0.1 and np.mean(d) > student_t_quantile(1 - 0.05 / m, 5) * se)


def test_one_regression_among_good_metrics_fails():
    good, bad = series("good", [0.0] * 6), series("bad", [0.3] * 6)
    found = go(good, bad)
    assert (found.result, found.standings) == ("fail", {"good": "passed", "bad": "regression_proven"})


def test_a_marked_metric_that_is_proven_worse_later_fails_all_the_same():
    marked = series("marked", [0.0, 0.01, 0.0, -0.01, 0.0, 0.01] + [2.0, 2.1, 2.0, 2.1, 2.0, 2.1] * 10)
    noisy = series("noisy", [0.5, -0.5] * 33)
    found = walk((marked, noisy), (6, 66), 66, 0.05, m=2, stop=True)
    assert (found.look, found.standings["marked"]) == (2, "regression_proven")


def test_nothing_is_decided_before_the_first_look():
    found = go(series("a", [0.0] * 5))
    assert (found.result, found.look, found.pairs) == ("open", 0, 0)


def test_an_unplanned_number_of_pairs_is_a_look_only_at_the_end():
    d = series("a", [0.2, -0.2] * 3 + [0.0])
    assert go(d, stop=False).pairs == 6
    assert (go(d, stop=True).pairs, go(d, stop=True).look, go(d, stop=True).level) == (7, 2, LEVEL)


def test_pairs_beyond_the_last_look_change_nothing():
    noisy = [0.2, -0.2] * 6
    assert go(series("a", noisy)) == go(series("a", [*noisy, 5.0, 5.0, 5.0]))


def test_the_first_look_that_decides_is_the_end():
    assert go(series("a", [0.0] * 6 + [0.5] * 6)).pairs == 6


def test_without_any_series_nothing_passes():
    assert walk((), LOOKS, 12, 0.05, m=1, stop=True).result == "open"
