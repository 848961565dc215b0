from dataclasses import replace
from pathlib import Path

import pytest

from tests.answers import answer, step
from tests.candidates import small_profile
from trtgate.console import Console
from trtgate.errors import InvalidMeasurementError, RuntimeFailedError
from trtgate.evidence.arm import rendered_arm
from trtgate.evidence.measure import Window, count_graphs, measure, work_of
from trtgate.loads.base import Ask


def test_replays_fallbacks_and_padding_are_counted_apart_by_kind() -> None:
    counts = count_graphs(
        [
            step("decode", 3, 4, 1.0),
            step("decode", 4, 4, 3.0),
            step("decode", 9, None, 7.0, reason="above largest bucket"),
            step("tokens", 10, 16, 5.0),
            step("tokens", 99, None, 9.0, reason="above largest bucket"),
        ]
    )
    assert counts is not None
    assert (counts.decode_steps, counts.decode_replayed, counts.token_steps, counts.token_replayed) == (
        3,
        2,
        2,
        1,
    )
    assert (counts.real_tokens, counts.padded_tokens) == (17, 24)
    assert counts.reasons == {"decode: above largest bucket": 1, "tokens: above largest bucket": 1}
    assert counts.step_ms == {"decode:4": 2.0, "eager:decode": 7.0, "eager:tokens": 9.0, "tokens:16": 5.0}
    assert counts.decode_fallback_ratio == 1 - 2 / 3


def test_no_statistics_is_unknown_and_not_zero() -> None:
    assert count_graphs([]) is None


def test_work_is_what_the_server_counted_and_what_was_asked_where_it_failed() -> None:
    asks = [Ask(0.0, (1, 2, 3), 5), Ask(0.0, (1, 2), 4), Ask(0.0, (1,), 3)]
    cut = replace(answer(index=0), prompt_tokens=2, tokens=5)
    silent = replace(answer(index=1), prompt_tokens=None, tokens=4)
    assert work_of(asks, [cut, silent, answer(index=2, error="reset")]) == [(2, 5), (2, 4), (1, 3)]
    assert work_of(asks, []) == [(3, 5), (2, 4), (1, 3)]


@pytest.mark.parametrize(
    ("error", "failure", "invalid"),
    [
        (RuntimeFailedError("out of memory"), "out of memory", ()),
        (InvalidMeasurementError("memory is held"), None, ("memory is held",)),
    ],
)
def test_a_failing_runtime_is_told_apart_from_a_failing_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, failure: str | None, invalid: object
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr("trtgate.evidence.measure.started", broken)
    arm = rendered_arm(small_profile(), "eager", "eager", tmp_path)
    window = Window((Ask(0.0, (1,), 1),), (), "t", (0.0, 1.0), 1)
    found = measure(arm, window, tmp_path, "now", Console(quiet=True)).measurement
    assert (found.failure, found.invalid) == (failure, invalid)
