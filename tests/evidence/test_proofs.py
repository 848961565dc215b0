from dataclasses import replace

from tests.answers import answer, step
from trtgate.evidence.proofs import (
    PIECEWISE,
    Compared,
    Visited,
    all_settled,
    compare_tokens,
    conclusion,
    drift,
    implausible,
    probe_above,
    prove,
)
from trtgate.evidence.staircase import Visit
from trtgate.loads.base import Ask
from trtgate.profile import Warmup
from trtgate.runtimes.base import Grids

GRIDS = Grids(decode=(1, 4), tokens=(16,))
SETTINGS = Warmup(stable_within=0.5)
RIGHT = Compared(4, 0)


def test_a_bucket_that_was_captured_hit_stable_and_right_is_valid() -> None:
    proof = prove(("decode", 4), [step("decode", 3, 4, ms) for ms in (9.0, 1.0, 1.1)], GRIDS, RIGHT, SETTINGS)
    assert (proof.valid, proof.hits, proof.cold_ms, proof.median_ms) == (True, 3, 9.0, 1.05)


def test_the_first_visit_is_kept_apart_from_the_median() -> None:
    steps = [step("decode", 4, 4, ms) for ms in (500.0, 1.0, 1.0, 1.0)]
    assert prove(("decode", 4), steps, GRIDS, RIGHT, SETTINGS).median_ms == 1.0


def test_a_bucket_that_no_step_replayed_is_invalid() -> None:
    steps = [step("decode", 3, 4, replayed=False)]
    assert prove(("decode", 4), steps, GRIDS, RIGHT, SETTINGS).why == "never replayed"


def test_a_bucket_missing_from_the_log_is_invalid_although_it_was_hit() -> None:
    proof = prove(("decode", 4), [step("decode", 4, 4)], Grids(decode=(1,), tokens=(16,)), RIGHT, SETTINGS)
    assert proof.why == "not captured"


def test_a_log_that_names_no_sizes_leaves_capture_unknown() -> None:
    proof = prove(("decode", 4), [step("decode", 4, 4)], Grids(), RIGHT, SETTINGS)
    assert (proof.captured, proof.valid) == (None, True)


def test_a_bucket_that_slows_down_is_not_stable() -> None:
    steps = [step("decode", 4, 4, ms) for ms in (1.0, 1.0, 1.0, 2.0, 2.0)]
    assert prove(("decode", 4), steps, GRIDS, RIGHT, SETTINGS).why == "not stable, +100%"


def test_wrong_answers_are_counted_in_the_reason() -> None:
    proof = prove(("decode", 4), [step("decode", 4, 4)], GRIDS, Compared(5, 2), SETTINGS)
    assert proof.why == "2 of 5 answers differ from eager"


def test_drift_needs_five_visits_and_leaves_out_the_first() -> None:
    assert drift([9.0, 1.0, 1.0, 1.0]) is None
    assert drift([9.0, 1.0, 1.0, 1.0, 1.0]) == 0.0


def test_another_round_is_needed_until_every_bucket_was_hit() -> None:
    steps = [step("decode", 1, 1), step("tokens", 10, 16)]
    assert not all_settled(GRIDS, steps, SETTINGS)
    assert all_settled(GRIDS, [*steps, step("decode", 2, 4)], SETTINGS)


def test_token_answers_count_for_the_bucket_they_are_padded_into() -> None:
    def visited(size: int, ids: tuple[int, ...], bucket: int | None = None) -> Visited:
        visit = Visit("tokens", (size,), (Ask(0.0, (1,) * size, 1),))
        return Visited(visit, (answer(ids),), (step("tokens", size, bucket),))

    references = [visited(size, (1,)) for size in (9, 16, 33)]
    seen = [visited(9, (1,), 16), visited(16, (2,), 16), visited(33, (2,))]
    assert compare_tokens(references, seen, (8, 16), 0.0) == {8: Compared(0, 0), 16: Compared(2, 1)}


def test_a_token_answer_does_not_count_for_a_bucket_that_its_visit_missed() -> None:
    visit = Visit("tokens", (16,), (Ask(0.0, (1,) * 16, 1),))
    chunked = Visited(visit, (answer(),), (step("tokens", 8, 8), step("tokens", 8, 8)))
    assert compare_tokens([chunked], [chunked], (8, 16), 0.0) == {8: Compared(1, 0), 16: Compared(0, 0)}


def test_a_bucket_without_a_compared_answer_is_valid_only_where_the_profile_says_so() -> None:
    steps = [step("decode", 4, 4)]
    assert prove(("decode", 4), steps, GRIDS, Compared(0, 0), SETTINGS).why == (
        "no answer could be compared with eager"
    )
    lenient = SETTINGS.model_copy(update={"require_answers": False})
    assert prove(("decode", 4), steps, GRIDS, Compared(0, 0), lenient).valid


def test_a_bucket_of_which_neither_capture_nor_replay_was_reported_is_not_proven() -> None:
    guess = replace(step("decode", 4, 4), predicted=True)
    proof = prove(("decode", 4), [guess], Grids(), RIGHT, SETTINGS)
    assert (proof.valid, proof.why) == (False, "neither its capture nor its replay was reported")
    assert prove(("decode", 4), [guess], GRIDS, RIGHT, SETTINGS).valid


def test_a_decode_step_in_a_piecewise_graph_is_no_hit_of_a_decode_bucket() -> None:
    assert prove(("decode", 4), [step("decode", 4, 4, reason=PIECEWISE)], GRIDS, RIGHT, SETTINGS).hits == 0


def test_the_conclusion_claims_only_what_was_seen_of_every_bucket() -> None:
    lenient = SETTINGS.model_copy(update={"require_answers": False})
    steps = [step("decode", 4, 4)] * 6
    sound = prove(("decode", 4), steps, GRIDS, RIGHT, lenient)
    assert conclusion([sound]) == "all 1 buckets captured, hit, stable and right"
    blind = prove(("decode", 4), steps, GRIDS, Compared(0, 0), lenient)
    assert conclusion([sound, blind]) == (
        "all 2 buckets captured, hit and stable; no answer could be compared, correctness unknown for 1"
    )
    assert conclusion([]) == "there is no bucket to prove: every step runs eager"


def test_the_size_above_the_largest_bucket_is_reported_as_it_ran() -> None:
    steps = [step("decode", 5, None, 3.0), step("decode", 6, None, 4.0), step("decode", 4, 4)]
    (probe,) = probe_above(GRIDS, steps)
    assert (probe.kind, probe.size, probe.steps, probe.replayed, probe.median_ms) == ("decode", 5, 1, 0, 3.0)


def test_times_too_short_for_a_step_are_said() -> None:
    assert "too short for a step" in (implausible([step("decode", 4, 4, 0.06)] * 3) or "")
    assert implausible([step("decode", 4, 4, 0.9)]) is None
    assert implausible([step("decode", 4, 4, None)]) is None
