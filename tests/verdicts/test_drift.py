import math

import numpy as np
import pytest

from tests.verdicts.ledgers import ledger
from trtgate.verdicts.drift import drift, drift_of
from trtgate.verdicts.judge import judge


def test_five_times_five_percent_are_twenty_eight():
    found = drift([1.05] * 5, 0.2, "ttft_ms p95")
    assert found.ratio == pytest.approx(1.2763, abs=1e-4)
    assert (found.state, found.message) == ("failed", "1.276x over 5 releases > 1.200")


def test_gains_pay_for_losses():
    assert drift([1.05, 1 / 1.05, 1.1], 0.11).state == "passed"


@pytest.mark.parametrize("unknown", [None, math.nan, 0.0])
def test_a_release_without_an_estimate_leaves_the_drift_open(unknown):
    found = drift([1.0, unknown], 0.1)
    assert (found.state, found.ratio) == ("open", None)


def test_the_drift_of_verdicts_is_that_of_each_metric():
    noise = np.array([0.01, -0.01] * 3)
    verdicts = [judge(ledger(np.log(1.05) + noise)) for _ in range(3)]
    (found,) = drift_of(verdicts, 0.15)
    assert (found.name, found.state, found.releases) == ("ttft_ms p95", "failed", 3)
    assert drift_of([], 0.15) == ()
