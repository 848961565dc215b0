import math

import pytest

from tests.verdicts.ledgers import changed, ledger
from trtgate.evidence.ledger import GraphCounts
from trtgate.verdicts.judge import judge
from trtgate.verdicts.shapes import match_steps, shape_verdicts


def counts(step_ms, steps=100):
    return GraphCounts(
        decode_steps=100, decode_replayed=100, step_ms=step_ms, step_counts=dict.fromkeys(step_ms, steps)
    )


def test_a_slower_engine_shows_at_equal_shape():
    source = changed(ledger([0.0] * 6), 0, "baseline", graphs=counts({"decode:8": 5.0, "decode:16": 6.0}))
    source = changed(source, 0, graphs=counts({"decode:8": 5.2, "decode:16": 6.24}))
    (found,) = shape_verdicts(source.pairs, source.head)
    assert found.ratio == pytest.approx(1.04)
    assert (found.state, found.critical, found.pairs) == ("advisory", False, 6)
    assert found.reason.startswith("within its limit; 100 % of the steps at 2 equal shapes, slowest `decode:")
    assert found in judge(source).metrics


def test_shapes_of_one_arm_only_and_eager_steps_are_left_out():
    baseline = counts({"decode:8": 5.0, "decode:32": 9.0, "eager:decode": 20.0})
    found = match_steps(
        baseline, counts({"decode:8": 5.0, "decode:64": 99.0, "eager:decode": 40.0}), "decode"
    )
    assert found.ratios == {"decode:8": 1.0}
    assert (found.steps, found.all_steps) == (200, 400)


def test_steps_are_weighted_by_how_often_they_ran():
    many = GraphCounts(
        step_ms={"tokens:64": 10.0, "tokens:128": 20.0}, step_counts={"tokens:64": 90, "tokens:128": 10}
    )
    slow = many.model_copy(update={"step_ms": {"tokens:64": 10.0, "tokens:128": 40.0}})
    found = match_steps(many, slow, "tokens")
    assert (found.baseline_ms, found.candidate_ms) == (11.0, 13.0)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_a_shape_without_a_usable_time_is_left_out(value):
    bad = GraphCounts.model_construct(step_ms={"decode:8": value}, step_counts={"decode:8": 100})
    assert match_steps(counts({"decode:8": 5.0}), bad, "decode") is None


def test_a_median_of_four_steps_is_no_evidence():
    assert match_steps(counts({"decode:8": 5.0}, 4), counts({"decode:8": 5.0}), "decode") is None


def test_step_time_is_advisory_only():
    source = changed(ledger([0.0] * 6), 0, "baseline", graphs=counts({"decode:8": 5.0}))
    verdict = judge(changed(source, 0, graphs=counts({"decode:8": 50.0})))
    assert verdict.result == "pass"
    assert verdict.metrics[-1].reason.startswith("over its limit")


def test_one_pair_is_not_enough():
    source = ledger([0.0])
    assert shape_verdicts(source.pairs, source.head) == ()
