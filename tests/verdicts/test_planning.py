import math

import pytest

from tests.verdicts.ledgers import TTFT, gate, ledger
from trtgate.profile import MetricLimit
from trtgate.verdicts.judge import judge
from trtgate.verdicts.planning import plan_budget, plan_metrics

SHORT, LONG = (6, 8, 10, 12), (8, 12, 16, 20)


@pytest.mark.parametrize(
    ("r", "looks", "chance", "pairs"),
    [
        (0.5, SHORT, 1.00, 6), (0.75, SHORT, 0.99, 7), (1.0, SHORT, 0.90, 8),
        (1.5, SHORT, 0.60, 10), (2.0, SHORT, 0.41, 10.5),
        (0.5, LONG, 1.00, 8), (0.75, LONG, 1.00, 9), (1.0, LONG, 0.99, 10),
        (1.5, LONG, 0.83, 14), (2.0, LONG, 0.60, 16),
    ],
)  # fmt: skip
def test_the_chance_of_an_equal_candidate_is_that_of_the_table(r, looks, chance, pairs):
    budget = plan_budget(r * math.log(1.1), 0.10, looks)
    assert budget.chance == pytest.approx(chance, abs=0.015)
    assert budget.mean_pairs == pytest.approx(pairs, abs=0.65)
    assert budget.noise_ratio == pytest.approx(r)


@pytest.mark.parametrize(("looks", "factor"), [(SHORT, 0.87), (LONG, 0.65)])
def test_the_smallest_usable_margin_follows_the_noise(looks, factor):
    budget = plan_budget(0.2, 0.10, looks)
    assert math.log1p(budget.smallest_margin) / 0.2 == pytest.approx(factor, abs=0.01)
    assert not budget.usable
    assert plan_budget(0.2, budget.smallest_margin + 0.001, looks).usable


def test_a_service_without_noise_always_passes():
    budget = plan_budget(0.0, 0.01, SHORT)
    assert (budget.chance, budget.mean_pairs, budget.smallest_margin) == (1, 6, 0)


def test_the_same_question_has_the_same_answer():
    assert plan_budget(0.1, 0.1, SHORT) == plan_budget(0.1, 0.1, SHORT)
    assert "smallest usable margin" in plan_budget(0.1, 0.1, SHORT).text


def test_a_gate_is_planned_from_the_noise_of_an_earlier_verdict():
    seen = judge(
        ledger([0.15, -0.15] * 6, gate(TTFT, MetricLimit(metric="itl_ms", quantile="p50", critical=False)))
    )
    planned = gate(TTFT.model_copy(update={"floor": 30.0}), MetricLimit(metric="e2e_ms", quantile="p95"))
    budgets = plan_metrics(seen.metrics, planned, SHORT)
    assert list(budgets) == ["ttft_ms p95"]
    assert budgets["ttft_ms p95"].margin == pytest.approx(0.3)
    assert budgets["ttft_ms p95"].usable
    assert not plan_metrics(seen.metrics, gate(TTFT), SHORT)["ttft_ms p95"].usable
