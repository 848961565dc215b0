import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verdicts.ledgers import LOOKS, TTFT, changed, gate, ledger, pair, run, scaled
from trtgate.errors import ExitCode, UsageError
from trtgate.evidence.ledger import Quantiles
from trtgate.profile import MetricLimit
from trtgate.record import sha256_file
from trtgate.verdicts.judge import Verdict, judge, next_step

QUIET = [0.001, -0.002, 0.0, 0.003, -0.001, 0.002, 0.001, 0.0, -0.002, 0.001, 0.002, -0.001]
P99 = MetricLimit(metric="ttft_ms", quantile="p99")
ITL = MetricLimit(metric="itl_ms", quantile="p50")
E2E_ADVISORY = MetricLimit(metric="e2e_ms", quantile="p95", critical=False)


def only(verdict: Verdict, name: str = "ttft_ms p95"):
    return next(metric for metric in verdict.metrics if metric.name == name)


def test_an_equal_candidate_passes_at_the_first_look():
    verdict = judge(ledger(QUIET[:6]))
    assert (verdict.result, verdict.exit_code, verdict.look) == ("pass", ExitCode.DONE, 1)
    assert next_step(ledger(QUIET[:6])).action == "stop"


def test_twenty_percent_more_is_a_proven_regression():
    verdict = judge(ledger(np.log(1.2) + np.array(QUIET[:6])))
    assert (verdict.result, verdict.exit_code) == ("fail", ExitCode.FAIL)
    assert only(verdict).reason == "regression_proven"
    assert only(verdict).lower_ratio > only(verdict).limit_ratio
    assert "ttft_ms p95" in verdict.reason


def test_twenty_percent_less_passes():
    assert judge(ledger(np.log(0.8) + np.array(QUIET[:6]))).result == "pass"


def test_noise_at_the_last_look_is_inconclusive():
    noisy = [0.15, -0.15] * 6
    verdict = judge(ledger(noisy))
    assert (verdict.result, verdict.exit_code, verdict.look) == ("inconclusive", ExitCode.INCONCLUSIVE, 4)
    assert "could not be shown" in verdict.reason


def test_a_likely_regression_fails_at_the_last_look_only():
    d = [0.11, 0.02, 0.2, 0.1, 0.05, 0.2, 0.11, 0.02, 0.2, 0.1, 0.05, 0.2]
    assert next_step(ledger(d[:8])).action == "measure"
    verdict = judge(ledger(d))
    assert (verdict.result, only(verdict).reason) == ("fail", "regression_likely")
    assert "lower bound" in only(verdict).text
    assert "> 1.000" in only(verdict).text
    plain = np.mean(d) - 1.7958848 * np.std(d, ddof=1) / np.sqrt(12)  # t(0.95, 11)
    assert only(verdict).lower_ratio == pytest.approx(np.exp(plain))


def test_a_mark_stays_when_later_pairs_are_worse():
    policy = gate(TTFT, ITL)
    first = ledger(QUIET, policy)
    noisy = {i: 100 * math.exp(0.15 * (-1) ** i) for i in range(1, 13)}
    for index, value in noisy.items():
        late = 1.1 if index > 6 else 1.0
        quantiles = run(
            "candidate", {"ttft_ms": 100 * math.exp(QUIET[index - 1]) * late, "itl_ms": value}
        ).quantiles
        first = changed(first, index, quantiles=quantiles)
    verdict = judge(first)
    assert verdict.result == "inconclusive"
    assert (only(verdict).state, only(verdict).pairs) == ("passed", 6)
    assert only(verdict, "itl_ms p50").state == "open"


def test_measuring_goes_on_from_look_to_look():
    noisy = [0.15, -0.15] * 6
    steps = [
        (next_step(ledger(noisy[:n])).action, next_step(ledger(noisy[:n])).to_go) for n in (0, 5, 6, 7, 11)
    ]
    assert steps == [("measure", 6), ("measure", 1), ("measure", 2), ("measure", 1), ("measure", 1)]
    assert next_step(ledger(noisy)).reason == "that was the last look"


def test_an_unplanned_number_of_pairs_decides_only_when_nothing_more_is_measured():
    seven = ledger([0.1, -0.05, 0.1, -0.05, 0.1, -0.05, 0.0])
    assert next_step(seven).to_go == 1
    verdict = judge(seven)
    assert (verdict.result, verdict.look, only(verdict).pairs) == ("pass", 2, 7)
    assert only(verdict).level == 0.0218


def test_fewer_pairs_than_the_first_look_are_no_verdict():
    verdict = judge(ledger(QUIET[:5]))
    assert (verdict.result, verdict.exit_code) == ("invalid", ExitCode.INVALID)
    assert verdict.reason == "not enough valid pairs: 5 of 6"


def test_an_empty_ledger_is_no_verdict():
    verdict = judge(ledger([]))
    assert verdict.result == "invalid"
    assert next_step(ledger([])).action == "measure"


def test_a_crash_of_the_candidate_fails_at_once_even_in_an_invalid_pair():
    fields = {"failure": "out of memory at size 64", "requests": 0, "send_lateness_p99_ms": None}
    crashed = changed(ledger(QUIET[:1]), 1, invalid=("client errors",), **fields)
    verdict = judge(crashed)
    assert verdict.result == "fail"
    assert "out of memory at size 64" in verdict.reason
    message = "candidate: client errors; the candidate failed: out of memory at size 64"
    assert verdict.findings[-1].message == message
    assert next_step(crashed).action == "stop"


def test_a_crash_of_the_baseline_is_replaced_and_never_a_fail():
    crashed = changed(ledger(QUIET[:7]), 3, "baseline", failure="exit code 139")
    verdict = judge(crashed)
    assert (verdict.result, verdict.pairs_valid, verdict.pairs_replaced) == ("pass", 6, 1)
    alone = ledger([]).with_pair(pair(1).model_copy(update={"candidate": None}))
    alone = changed(alone, 1, "baseline", failure="hung")
    assert judge(alone).result == "invalid"


def test_at_most_three_pairs_are_replaced():
    source = ledger(QUIET[:9])
    for index in (1, 2, 3):
        source = changed(source, index, invalid=("clocks throttled",))
    assert judge(source).result == "pass"
    source = changed(source, 4, "baseline", invalid=("foreign process on the device",))
    verdict = judge(source)
    assert verdict.result == "invalid"
    assert "4 pairs were invalid" in verdict.reason
    assert next_step(source).action == "stop"


def test_three_invalid_pairs_are_not_yet_too_many():
    source = ledger(QUIET[:4])
    for index in (1, 2, 3):
        source = changed(source, index, invalid=("clocks throttled",))
    assert next_step(source).action == "measure"


def test_what_follows_a_fourth_invalid_pair_decides_nothing():
    source = ledger(QUIET[:10])
    for index in (6, 7, 8, 9):
        source = changed(source, index, invalid=("clocks throttled",))
    verdict = judge(source)
    assert (verdict.result, verdict.pairs_valid) == ("invalid", 5)


def test_too_many_invalid_pairs_leave_no_unplanned_look():
    source = ledger([0.1, -0.05, 0.1, -0.05, 0.1, -0.05, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert judge(source.model_copy(update={"pairs": source.pairs[:7]})).result == "pass"
    for index in (8, 9, 10, 11):
        source = changed(source, index, invalid=("clocks throttled",))
    assert judge(source).result == "invalid"


def test_an_advisory_metric_may_be_missing():
    verdict = judge(ledger(QUIET[:6], gate(TTFT, E2E_ADVISORY)))
    source = changed(
        ledger(QUIET[:6], gate(TTFT, E2E_ADVISORY)),
        2,
        quantiles=run("candidate", {"ttft_ms": 100.0}).quantiles,
    )
    assert only(verdict, "e2e_ms p95").state == "advisory"
    assert judge(source).result == "pass"
    assert only(judge(source), "e2e_ms p95").text == "e2e_ms p95 1.001x, 1 pair: not gated"
    assert only(judge(source), "e2e_ms p95").reason == "missing in pair 2"


def test_a_decision_stands_though_invalid_pairs_follow():
    source = ledger(QUIET[:6])
    for index in range(7, 11):
        source = source.with_pair(pair(index))
        source = changed(source, index, invalid=("clocks throttled",))
    assert judge(source).result == "pass"


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"trace_sha256": "other"}, "different traces"),
        ({"work_sha256": "other"}, "token counts per request differ"),
        ({"requests": 0, "succeeded": 0}, "no requests"),
        ({"succeeded": 2999}, "3000 requests are not 2999 answers"),
        ({"send_lateness_p99_ms": 51.0}, "late, p99 51.0 ms over 50.0 ms"),
        ({"send_lateness_p99_ms": None}, "not recorded"),
        ({"send_lateness_p99_ms": math.nan}, "not recorded"),
        ({"quantiles": {}}, "`ttft_ms p95` is missing or not above zero"),
        ({"graphs": None}, "no graph counts"),
        ({"memory_bytes": None}, "`memory_bytes` is missing"),
        ({"memory_bytes": 0}, "`memory_bytes` is missing"),
        ({"kv_tokens": None}, "`kv_tokens` is missing"),
        ({"requests": 2000, "succeeded": 2000}, "3000 and 2000 requests"),
        ({"work_sha256": "", "output_tokens": 1}, "90000 and 1 tokens"),
    ],
)
def test_each_cause_makes_a_pair_invalid(fields, cause):
    verdict = judge(changed(ledger(QUIET[:6]), 2, **fields))
    assert verdict.result == "invalid"
    assert cause in next(f.message for f in verdict.findings if f.check == "pair 2")


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
def test_what_is_no_latency_is_never_a_pass(value):
    bad = Quantiles.model_construct(samples=3000, p50=value, p95=value, p99=value, maximum=value)
    for arm in ("baseline", "candidate"):
        source = changed(ledger(QUIET[:6]), 0, arm, quantiles={"ttft_ms": bad})
        assert judge(source).result == "invalid"
        assert next_step(source).action == "stop"


def test_a_pair_counted_twice_is_invalid():
    source = ledger(QUIET[:5])
    verdict = judge(source.with_pair(source.pairs[0]))
    assert verdict.result == "invalid"
    assert "in the ledger twice" in verdict.reason


def test_a_metric_without_samples_is_reported_and_not_gated():
    source = ledger(
        np.log(1.5) + np.array(QUIET[:6]), gate(P99, MetricLimit(metric="itl_ms", quantile="p50"))
    )
    for arm, factor in (("baseline", 1.0), ("candidate", 1.5)):
        quantiles = run(arm, {"ttft_ms": 100 * factor}, 1999).quantiles | run(arm, {"itl_ms": 10.0}).quantiles
        source = changed(source, 0, arm, quantiles=quantiles)
    verdict = judge(source)
    assert verdict.result == "pass"
    assert only(verdict, "ttft_ms p99").state == "not gated"
    assert only(verdict, "ttft_ms p99").ratio == pytest.approx(1.5)
    assert (
        "`ttft_ms p99` was not gated: 1999 samples in the smallest run of 2000 needed" in verdict.cannot_prove
    )


def test_without_any_gated_metric_there_is_no_verdict_and_no_more_measuring():
    source = ledger(QUIET[:6], gate(P99))
    for arm in ("baseline", "candidate"):
        source = changed(source, 0, arm, quantiles=run(arm, {"ttft_ms": 100.0}, 300).quantiles)
    assert judge(source).result == "invalid"
    assert next_step(source.model_copy(update={"pairs": source.pairs[:1]})).action == "stop"


def test_a_candidate_cannot_lose_samples_to_escape_a_gate():
    source = ledger(QUIET[:6], gate(P99, ITL))
    values = {"ttft_ms": 100.0, "itl_ms": 100.0}
    source = changed(source, 0, quantiles=run("candidate", values, 1999).quantiles)
    assert judge(source).result == "invalid"
    assert "1999 samples of 2000" in judge(source).findings[-1].message


def test_one_short_pair_does_not_end_the_gating_of_a_metric():
    source = ledger([0.0] * 7, gate(P99, ITL))
    for arm in ("baseline", "candidate"):
        source = changed(
            source, 4, arm, quantiles=run(arm, {"ttft_ms": 100.0, "itl_ms": 100.0}, 1950).quantiles
        )
    verdict = judge(source)
    assert (verdict.result, verdict.pairs_replaced) == ("pass", 1)
    assert only(verdict, "ttft_ms p99").state == "passed"
    assert "`ttft_ms p99` has 1950 samples of 2000, the first pair had 3000" in verdict.findings[-1].message


def test_an_advisory_metric_never_changes_the_verdict():
    source = ledger(QUIET[:6], gate(TTFT, E2E_ADVISORY))
    quantiles = run("candidate", {"ttft_ms": 100.0, "e2e_ms": 300.0}).quantiles
    verdict = judge(changed(source, 0, quantiles=quantiles))
    assert verdict.result == "pass"
    assert (only(verdict, "e2e_ms p95").state, only(verdict, "e2e_ms p95").reason) == (
        "advisory",
        "over its limit",
    )


def test_the_floor_forgives_a_fraction_of_a_millisecond():
    small = [pair(i, math.log(1.5), baseline_ms=1.0) for i in range(1, 7)]
    source = ledger([]).model_copy(update={"pairs": tuple(small)})
    verdict = judge(source)
    assert verdict.result == "pass"
    assert only(verdict).limit_ratio == pytest.approx(2.0)


def test_the_line_of_a_metric_says_ratio_bound_limit_pairs_and_state():
    d = np.log(1.031) + np.array([0.03, -0.03, 0.04, -0.04, 0.02, -0.02])
    assert only(judge(ledger(d))).text == "ttft_ms p95 1.031x, 95 % bound 1.070 < 1.100, 6 pairs: passed"
    assert "103.1 ms against 100 ms, 3000 samples" in only(judge(ledger(d))).detail


def test_every_green_verdict_says_what_it_cannot_prove():
    lines = judge(ledger(QUIET[:6])).cannot_prove
    assert "no failure in 6 runs only shows a rate under 39 % a run (95 %)" in lines
    assert lines[-1] == "more concurrency than the replayed trace had was not tried"


def test_start_variance_that_was_not_seen_is_named():
    source = changed(changed(ledger(QUIET[:6]), 0, start_ms={}), 0, "baseline", start_ms={})
    assert any("start-to-start variance" in line for line in judge(source).cannot_prove)


def test_noise_above_the_margin_is_named_with_the_margin_that_would_do():
    noisy = [0.15, -0.15] * 6
    line = next(line for line in judge(ledger(noisy)).cannot_prove if "noise" in line)
    assert "sd 0.157" in line
    assert "smallest usable margin is 14 %" in line


def test_the_verdict_is_bound_to_the_file_of_the_ledger(tmp_path):
    source = ledger(QUIET[:6])
    source.write(tmp_path / "ledger.jsonl")
    verdict = judge(source)
    assert verdict.ledger_sha256 == sha256_file(tmp_path / "ledger.jsonl")
    assert verdict.policy_sha256 == source.head.policy_sha256
    assert Verdict.parse(verdict.to_json(), "here") == verdict


def test_a_second_attempt_is_on_record():
    source = ledger(QUIET[:6])
    again = source.model_copy(update={"head": source.head.model_copy(update={"attempt": 2})})
    note = next(f for f in judge(again).findings if f.check == "attempt")
    assert (note.state, note.message) == ("note", "attempt 2: no reason given")


def test_one_order_throughout_is_noted():
    source = ledger(QUIET[:6])
    pairs = tuple(p.model_copy(update={"order": "baseline-first"}) for p in source.pairs)
    findings = judge(source.model_copy(update={"pairs": pairs})).findings
    assert [f.message for f in findings if f.check == "order"] == ["6 of 6 pairs ran the baseline first"]


differences = st.lists(st.floats(-0.4, 0.4), min_size=6, max_size=12)


@settings(max_examples=60, deadline=None)
@given(differences, st.floats(1, 3))
def test_a_slower_candidate_never_turns_a_fail_into_a_pass(d, factor):
    order = {"pass": 0, "inconclusive": 1, "fail": 2}
    source = ledger(d)
    worse = judge(scaled(source, factor)).result
    if judge(source).result == "fail":
        assert worse == "fail"
    assert order[worse] >= 0


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.floats(-0.3, 0.3), min_size=3, max_size=3), min_size=6, max_size=12),
    st.permutations(range(3)),
)
def test_the_order_of_the_metrics_changes_nothing(rows, order):
    limits = [TTFT, ITL, MetricLimit(metric="e2e_ms", quantile="p95")]
    source = ledger([0.0] * len(rows), gate(*limits))
    for index, row in enumerate(rows, 1):
        values = {limit.metric: 100 * math.exp(x) for limit, x in zip(limits, row, strict=True)}
        source = changed(source, index, quantiles=run("candidate", values).quantiles)
    shuffled = gate(*(limits[i] for i in order))
    other = source.model_copy(update={"head": source.head.model_copy(update={"gate": shuffled})})
    one, two = judge(source), judge(other)
    assert one.result == two.result
    assert {m.name: m for m in one.metrics} == {m.name: m for m in two.metrics}


@settings(max_examples=40, deadline=None)
@given(differences, st.integers(1, 6), st.sampled_from(["baseline", "candidate"]))
def test_a_missing_metric_in_one_of_six_pairs_is_never_a_pass(d, index, arm):
    assert judge(changed(ledger(d[:6]), index, arm, quantiles={})).result != "pass"


events = st.lists(
    st.sampled_from(["fine", "fine", "fine", "slow", "invalid", "baseline fails", "fails"]), max_size=14
)


@settings(max_examples=100, deadline=None)
@given(events)
def test_whatever_happens_a_canary_ends_and_only_clean_ones_pass(names):
    source = ledger([0.25 if name == "slow" else QUIET[i % 12] for i, name in enumerate(names)])
    for index, name in enumerate(names, 1):
        if name == "invalid":
            source = changed(source, index, invalid=("clocks throttled",))
        if name == "baseline fails":
            source = changed(source, index, "baseline", failure="exit code 1")
        if name == "fails":
            source = changed(source, index, failure="exit code 1")
    result, step = judge(source).result, next_step(source)
    assert (result == "fail") >= ("fails" in names)
    if step.action == "measure":
        assert names.count("invalid") + names.count("baseline fails") <= 3
        assert step.to_go >= 1
    if result == "pass":
        assert len(names) - names.count("invalid") - names.count("baseline fails") >= 6


@pytest.mark.parametrize("looks", [(), (1, 4), (6, 6), (8, 6)])
def test_a_ledger_with_odd_looks_is_refused(looks):
    with pytest.raises(UsageError, match="the ledger has looks"):
        judge(ledger(QUIET, looks=looks))


def test_many_pairs_have_no_sign_flip_count():
    verdict = judge(ledger([0.15, -0.15] * 25, looks=(50,)))
    assert only(verdict).sign_flip_p is None
    assert only(judge(ledger(QUIET[:6]))).sign_flip_p == 1 / 64


def test_looks_are_taken_from_the_head():
    assert judge(ledger(QUIET[:3], looks=(3,))).result == "pass"
    assert judge(ledger(QUIET[:3], looks=LOOKS)).result == "invalid"


def test_a_verdict_without_a_gated_tail_says_so():
    limit = MetricLimit(metric="ttft_ms", quantile="p50", margin=2.0)
    sentences = judge(ledger([0.0] * 6, gate(limit))).cannot_prove
    assert "no tail decided this verdict: neither a p95 nor a p99 was gated" in sentences
    assert "the limits are wide; anything slower by less than this passes: `ttft_ms p50` 3.00x" in sentences
    assert not any(
        "tail" in sentence or "wide" in sentence for sentence in judge(ledger([0.0] * 6)).cannot_prove
    )


def test_an_advisory_tail_with_too_few_samples_is_named():
    tail = MetricLimit(metric="ttft_ms", quantile="p99", critical=False)
    few = changed(
        ledger([0.0] * 6, gate(TTFT, tail)), 0, quantiles=run("candidate", {"ttft_ms": 100.0}, 500).quantiles
    )
    assert any(
        sentence.startswith("`ttft_ms p99` was not gated: 500 samples")
        for sentence in judge(few).cannot_prove
    )


def test_a_runtime_exchanged_between_two_pairs_makes_the_later_one_invalid():
    source = changed(ledger([0.0] * 6), 0, runtime_version="1.0")
    mixed = changed(source, 4, runtime_version="1.1")
    verdict = judge(mixed)
    (note,) = [finding for finding in verdict.findings if finding.check == "pair 4"]
    assert note.message == "candidate: runtime version 1.1, the first pair ran 1.0"


def test_what_the_runs_say_of_themselves_stands_beside_the_verdict():
    noted = changed(ledger([0.0] * 6), 0, notes=("rows were lost",))
    assert "candidate, 6 runs: rows were lost" in judge(noted).cannot_prove


def test_few_compared_answers_are_said():
    few = changed(ledger([0.0] * 6), 0, checked_answers=10)
    assert "only 60 of 18000 answers could be compared with the baseline's" in judge(few).cannot_prove
