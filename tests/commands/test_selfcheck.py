"""The canary checks its own load generator before it spends time on a server."""

import pytest

from tests.candidates import small_profile
from tests.verdicts import ledgers
from trtgate.commands import steps
from trtgate.console import Console
from trtgate.errors import InvalidMeasurementError
from trtgate.evidence.ledger import Ledger
from trtgate.loads.selfcheck import Level, Selfcheck
from trtgate.profile import Profile

NEW = ledgers.ledger([], ledgers.gate(ledgers.TTFT), looks=(6,))
DONE = ledgers.ledger([0.0] * 6, ledgers.gate(ledgers.TTFT), looks=(6,))


def profile(*, wanted: bool = True, floor: float = 7.0) -> Profile:
    metric = {"metric": "ttft_ms", "quantile": "p50", "floor": floor}
    return small_profile(canary={"selfcheck": wanted}, gate={"metrics": [metric]})


def said(rate: float, limit_ms: float) -> Selfcheck:
    level = Level(
        tokens_per_s=rate,
        ttft_sent_ms=1,
        ttft_got_ms=1,
        itl_sent_ms=1,
        itl_got_ms=1,
        late_ms=0,
        lag_ms=0,
        failed=0,
    )
    return Selfcheck(limit_ms=limit_ms, levels=(level,), believed_tokens_per_s=rate)


def test_the_rate_that_is_believed_goes_on_to_the_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(steps, "selfcheck", lambda limit_ms: said(1000.0 * limit_ms, limit_ms))
    assert steps._believed(profile(), NEW, Console()) == 7000.0
    assert "believed up to 7000 tokens/s" in capsys.readouterr().err


def test_a_host_on_which_nothing_can_be_measured_is_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "selfcheck", lambda limit_ms: said(0.0, limit_ms))
    with pytest.raises(InvalidMeasurementError, match="off by more than 7 ms"):
        steps._believed(profile(), NEW, Console())


@pytest.mark.parametrize(
    ("wanted", "ledger"), [(False, NEW), (True, DONE)], ids=["not wanted", "all measured"]
)
def test_no_self_check_where_none_is_needed(
    monkeypatch: pytest.MonkeyPatch, wanted: bool, ledger: Ledger
) -> None:
    monkeypatch.setattr(steps, "selfcheck", lambda limit_ms: pytest.fail(f"checked {limit_ms}"))
    assert steps._believed(profile(wanted=wanted), ledger, Console()) is None


def test_the_real_check_finds_a_rate() -> None:
    assert steps._believed(profile(floor=1e6), NEW, Console(quiet=True)) is not None
