import pytest

from tests.verdicts.ledgers import TTFT, changed, gate, ledger
from trtgate.evidence.ledger import GraphCounts
from trtgate.verdicts.checks import CHECKS
from trtgate.verdicts.judge import judge, next_step

EQUAL = [0.0] * 6


def finding(source, check):
    return next(f for f in judge(source).findings if f.check == check)


def counts(fallback: float, **fields) -> GraphCounts:
    real = fields.pop("real", 100)
    return GraphCounts(
        decode_steps=1000,
        decode_replayed=1000 - round(1000 * fallback),
        real_tokens=real,
        padded_tokens=fields.pop("padded", 110),
        **fields,
    )


def test_every_check_of_an_equal_candidate_passes_with_its_unit():
    findings = judge(ledger(EQUAL)).findings
    assert [(f.check, f.state) for f in findings] == [(check.name, "passed") for check in CHECKS]
    assert all(f.unit and f.message for f in findings)


@pytest.mark.parametrize(
    ("check", "fields"),
    [
        ("runtime failures", {"failure": "hang"}),
        ("wrong answers", {"wrong_answers": 1}),
        ("error ratio", {"succeeded": 2999, "errors": {"http 500": 1}}),
        ("error ratio increase", {"succeeded": 2999, "errors": {"http 500": 1}}),
        ("decode fallback", {"graphs": counts(0.051)}),
        ("padding increase", {"graphs": counts(0.0, padded=1700)}),
        ("memory increase", {"memory_bytes": 1_100_001}),
        ("KV capacity ratio", {"kv_tokens": 44_999}),
    ],
)
def test_one_broken_run_fails_at_once(check, fields):
    broken = changed(ledger(EQUAL[:2]), 2, **fields)
    assert finding(broken, check).state == "failed"
    assert judge(broken).result == "fail"
    assert next_step(broken).action == "stop"


def test_what_is_just_allowed_passes():
    graphs = counts(0.05, padded=210)
    source = changed(ledger(EQUAL), 0, "baseline", graphs=counts(0.05))
    source = changed(source, 0, graphs=graphs, memory_bytes=1_100_000, kv_tokens=45_000)
    assert judge(source).result == "pass"


def test_a_failed_run_later_undoes_a_pass():
    source = ledger([0.0] * 7)
    assert judge(changed(source, 7, failure="exit code 134")).result == "fail"


def test_errors_are_named_with_their_kind_and_left_out_of_latency():
    source = changed(ledger(EQUAL), 3, succeeded=2990, errors={"timeout": 7, "http 500": 3})
    message = finding(source, "error ratio").message
    assert "10 left out of latency; pair 3: 3 http 500, 7 timeout" in message


def test_errors_of_the_baseline_allow_as_many_of_the_candidate():
    policy = gate(max_error_ratio=0.1)
    source = changed(ledger(EQUAL, policy), 0, "baseline", succeeded=2999, errors={"timeout": 1})
    assert judge(changed(source, 0, succeeded=2999, errors={"timeout": 1})).result == "pass"
    assert judge(changed(source, 0, succeeded=2998, errors={"timeout": 2})).result == "fail"


def test_errors_of_both_arms_are_added_up_over_the_pairs_so_far():
    source = changed(
        ledger(EQUAL, gate(max_error_ratio=0.1)), 1, "baseline", succeeded=2998, errors={"timeout": 2}
    )
    assert judge(changed(source, 2, succeeded=2999, errors={"timeout": 1})).result == "pass"
    assert judge(changed(source, 2, succeeded=2997, errors={"timeout": 3})).result == "fail"


def test_more_fallbacks_than_the_margin_are_a_regression():
    source = changed(ledger(EQUAL), 0, graphs=counts(0.04, reasons={"batch above the largest": 40}))
    found = finding(source, "decode fallback increase")
    assert (found.state, judge(source).result) == ("failed", "fail")
    assert "lower bound" in found.message


def test_a_noisy_fallback_ratio_stays_open_and_withholds_the_pass():
    source = ledger([0.0] * 12)
    for index in range(1, 13):
        source = changed(source, index, graphs=counts(0.049 if index % 3 == 0 else 0.0))
    assert finding(source, "decode fallback increase").state == "open"
    assert judge(source).result == "inconclusive"


def test_no_increase_at_all_can_be_asked_for():
    assert judge(ledger(EQUAL, gate(max_fallback_increase=0.0))).result == "pass"
    worse = changed(ledger([0.0] * 12, gate(max_fallback_increase=0.0)), 5, graphs=counts(0.001))
    assert judge(worse).result != "pass"


def test_evidence_that_only_the_baseline_lacks_is_noted_and_listed():
    source = changed(ledger(EQUAL), 0, "baseline", graphs=None, memory_bytes=None, kv_tokens=None)
    verdict = judge(source)
    assert verdict.result == "pass"
    noted = [f.check for f in verdict.findings if f.state == "note"]
    assert noted == ["decode fallback increase", "padding increase", "memory increase", "KV capacity ratio"]
    assert "memory increase: not measured in both arms" in verdict.cannot_prove


def test_a_runtime_without_counts_needs_limits_that_say_so():
    bare = changed(changed(ledger(EQUAL), 0, graphs=None), 0, "baseline", graphs=None)
    assert judge(bare).result == "invalid"
    policy = gate(max_fallback_ratio=1.0)
    allowed = bare.model_copy(update={"head": bare.head.model_copy(update={"gate": policy})})
    assert judge(allowed).result == "pass"


def test_fallbacks_of_some_baseline_runs_only_withhold_the_pass():
    verdict = judge(changed(ledger(EQUAL), 2, "baseline", graphs=None))
    assert (verdict.result, verdict.reason) == (
        "inconclusive",
        "decode fallback increase: not measured in every pair",
    )


def test_a_trace_without_decode_steps_has_no_fallbacks_to_judge():
    none = GraphCounts(token_steps=10, token_replayed=10, real_tokens=100, padded_tokens=110)
    source = changed(changed(ledger(EQUAL), 0, graphs=none), 0, "baseline", graphs=none)
    assert finding(source, "decode fallback increase").state == "note"
    assert judge(source).result == "pass"
    assert judge(changed(ledger(EQUAL), 2, graphs=none)).result == "invalid"


def test_predicted_replays_are_not_sold_as_reported_ones():
    source = changed(ledger(EQUAL), 0, graphs=counts(0.0, predicted=True))
    assert any("do not report" in line or "does not report" in line for line in judge(source).cannot_prove)


def test_answers_that_nobody_compared_are_named():
    source = changed(ledger(EQUAL), 0, checked_answers=0)
    assert finding(source, "wrong answers").state == "note"
    assert any("no answer was compared" in line for line in judge(source).cannot_prove)


def test_wrong_answers_are_held_against_their_share_of_those_compared():
    limits = gate(TTFT, max_wrong_answer_ratio=0.02)
    few = changed(ledger([0.0] * 6, limits), 0, checked_answers=100, wrong_answers=1)
    many = changed(ledger([0.0] * 6, limits), 0, checked_answers=100, wrong_answers=30)
    assert judge(few).result == "pass"
    assert judge(many).reason.startswith("wrong answers: 180 of")
