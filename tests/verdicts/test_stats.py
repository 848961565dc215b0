from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtgate.errors import InvalidMeasurementError
from trtgate.verdicts.stats import (
    bounds,
    level_per_look,
    quantile,
    samples_needed,
    sign_flip_p,
    student_t_quantile,
    zero_event_bound,
)


@pytest.mark.parametrize(
    ("p", "df", "expected"),
    [
        (0.95, 5, 2.0150483733330233),
        (0.975, 11, 2.200985160082949),
        (0.975, 1, 12.706204736432095),
        (0.99, 80, 2.3738682),
    ],
)
def test_t_quantiles_agree_with_the_tables(p, df, expected):
    assert student_t_quantile(p, df) == pytest.approx(expected, rel=1e-6)


def test_t_quantile_of_one_degree_is_that_of_cauchy():
    for p in (0.6, 0.9, 0.975, 0.9995):
        assert student_t_quantile(p, 1) == pytest.approx(np.tan(np.pi * (p - 0.5)), rel=1e-12)


def test_t_quantile_of_two_degrees_has_a_closed_form():
    for p in (0.51, 0.9, 0.99, 0.9999):
        exact = (2 * p - 1) / np.sqrt(2 * p * (1 - p))
        assert student_t_quantile(p, 2) == pytest.approx(exact, rel=1e-12)


def test_t_quantile_is_odd_about_the_median():
    assert student_t_quantile(0.5, 7) == 0
    assert student_t_quantile(0.02, 7) == -student_t_quantile(0.98, 7)


def test_quantile_is_the_order_statistic_number_ceil_of_p_n():
    values = np.arange(1, 101, dtype=float)
    assert [quantile(values, p) for p in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    assert quantile(np.arange(1.0, 102), 0.95) == 96
    assert quantile(np.array([3.0]), 0.5) == 3


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.sampled_from([0.07, 0.5, 0.95, 0.99]))
def test_at_least_p_of_the_samples_are_at_or_below_the_quantile(values, p):
    found = quantile(np.array(values), p)
    assert found in values
    assert sum(v <= found for v in values) >= p * len(values) - 1e-9
    assert sum(v < found for v in values) < p * len(values)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]])
def test_quantile_refuses_what_is_no_sample(values):
    with pytest.raises(InvalidMeasurementError):
        quantile(np.array(values), 0.5)


def test_samples_needed_are_twenty_beyond_the_quantile():
    assert [samples_needed(p) for p in (0.5, 0.95, 0.99, 0.999)] == [40, 400, 2000, 20_000]


def test_levels_come_from_the_table_and_else_are_divided():
    assert level_per_look((6, 8, 10, 12), 0.05) == 0.0218
    assert level_per_look((8, 12, 16), 0.025) == 0.0115
    assert level_per_look((6, 8), 0.01) == 0.005
    assert level_per_look((5,), 0.05) == 0.05
    assert level_per_look((4, 6, 8), 0.05) == pytest.approx(0.05 / 3)


def test_bounds_follow_formula_2_5():
    d = np.array([0.01, 0.03, -0.02, 0.04, 0.00, 0.02])
    found = bounds(d, 0.05, 2)
    se = np.std(d, ddof=1) / np.sqrt(6)
    assert found.upper == pytest.approx(d.mean() + 2.0150483733 * se)
    assert found.lower == pytest.approx(d.mean() - 2.5705818356 * se)


def test_identical_pairs_do_not_get_infinite_confidence():
    assert bounds(np.zeros(6), 0.05, 1).se == pytest.approx(0.001 / np.sqrt(6))
    assert bounds(np.zeros(6), 0.05, 1, floor=0.01).upper > 0.008


@settings(max_examples=50)
@given(st.lists(st.floats(-1, 1).map(lambda x: round(x, 3)), min_size=2, max_size=9))
def test_sign_flip_p_agrees_with_all_sign_patterns(values):
    x = np.array(values) - 0.1
    sums = [np.dot(signs, np.abs(x)) for signs in product((-1, 1), repeat=len(x))]
    exact = np.mean(np.array(sums) <= x.sum() + 1e-8)
    assert sign_flip_p(np.array(values), 0.1) == pytest.approx(exact)


def test_six_pairs_all_below_give_one_in_sixty_four():
    assert sign_flip_p(np.array([0.01, 0.0, 0.02, -0.01, 0.03, 0.015]), 0.1) == 1 / 64


def test_no_event_in_twelve_runs_bounds_the_rate_at_22_percent():
    assert zero_event_bound(12) == pytest.approx(0.221, abs=5e-4)
    assert zero_event_bound(0) == 1
