from tests.answers import step
from trtgate.evidence.measure import count_graphs


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
