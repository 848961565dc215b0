"""A sketch is as exact as it says, and merging changes nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtgate.errors import InvalidMeasurementError
from trtgate.loads import metrics
from trtgate.loads.metrics import quantile, spread
from trtgate.loads.sketch import ERROR, Sketch

VALUES = st.lists(st.one_of(st.just(0.0), st.floats(1e-5, 1e7)), min_size=1, max_size=80)


@given(VALUES, st.sampled_from([0.0, 0.5, 0.95, 0.99, 0.999, 1.0]))
def test_a_quantile_is_within_its_stated_error(values, p):
    assert Sketch.of(values).quantile(p) == pytest.approx(quantile(values, p), rel=ERROR + 1e-9)


@given(VALUES, VALUES)
def test_merged_is_the_same_as_made_at_once(first, second):
    merged, whole = Sketch.of(first).merge(Sketch.of(second)), Sketch.of(first + second)
    assert (merged.counts, merged.zeros, merged.max) == (whole.counts, whole.zeros, whole.max)


@pytest.mark.parametrize("values", [[-1.0], [float("nan")], [float("inf")]])
def test_what_no_latency_can_be_is_refused(values):
    with pytest.raises(InvalidMeasurementError):
        Sketch.of(values)


def test_a_quantile_of_nothing_is_an_error():
    with pytest.raises(InvalidMeasurementError):
        Sketch.of([]).quantile(0.5)


def test_a_sketch_survives_its_file():
    sketch = Sketch.of([1.0, 2.0, 0.0])
    assert Sketch.parse(sketch.to_json(), "it") == sketch


def test_many_samples_are_spread_by_a_sketch_that_states_its_error(monkeypatch):
    monkeypatch.setattr(metrics, "EXACT_UP_TO", 100)
    values = np.random.default_rng(1).lognormal(size=101)
    got = spread(values)
    assert (got.n, got.error) == (101, ERROR)
    assert got.p99 == pytest.approx(quantile(values, 0.99), rel=ERROR)
