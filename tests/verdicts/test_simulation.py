"""Error rates of the judge, counted over seeds: `release-gate.md` 2.8."""

import numpy as np
import pytest

from tests.verdicts.ledgers import sequence
from trtgate.verdicts.judge import judge
from trtgate.verdicts.stats import LEVELS, level_per_look, student_t_quantile

SEEDS = 300
DELTA = np.log(1.1)


def rates(mean: float, sigma: float, draw: str = "normal") -> dict[str, float]:
    """The share of each result when a canary runs to its end, and the pairs it took."""
    rng = np.random.default_rng([7, int(1e6 * abs(mean)), int(1e6 * sigma)])
    counts = dict.fromkeys(("pass", "fail", "inconclusive", "invalid"), 0)
    for _ in range(SEEDS):
        noise = rng.standard_normal(12) if draw == "normal" else rng.standard_t(4, 12) / np.sqrt(2)
        counts[judge(sequence(mean + sigma * noise)).result] += 1
    return {name: count / SEEDS for name, count in counts.items()}


@pytest.mark.parametrize("r", [0.5, 1.0])
def test_an_equal_candidate_fails_in_at_most_one_percent(r):
    found = rates(0.0, r * DELTA)
    assert found["fail"] <= 0.01
    assert found["pass"] >= (0.99 if r == 0.5 else 0.86)
    assert found["invalid"] == 0


@pytest.mark.parametrize(("r", "draw"), [(0.5, "normal"), (1.0, "normal"), (0.9, "heavy")])
def test_a_candidate_at_the_margin_passes_in_at_most_seven_percent(r, draw):
    assert rates(DELTA, r * DELTA, draw)["pass"] <= 0.07


def test_twice_the_margin_never_passes():
    found = rates(np.log(1.2), 0.9 * DELTA)
    assert found["pass"] == 0
    assert found["fail"] >= 0.99


@pytest.mark.parametrize("overall", [0.05, 0.025, 0.01])
@pytest.mark.parametrize("looks", [(6,), *LEVELS, (4, 6, 8)])
def test_the_level_of_each_look_keeps_the_overall_level(looks, overall):
    draws = np.random.default_rng(11).standard_normal((40_000, looks[-1]))
    level = level_per_look(looks, overall)
    wrong = np.zeros(len(draws), dtype=bool)
    for n in looks:
        head = draws[:, :n]
        se = head.std(axis=1, ddof=1) / np.sqrt(n)
        wrong |= head.mean(axis=1) + student_t_quantile(1 - level, n - 1) * se < 0
    error = 4 * np.sqrt(overall / len(draws))
    assert np.mean(wrong) <= overall + error
    if looks in LEVELS and overall > 0.01:
        assert np.mean(wrong) >= overall - error
