from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from tests.verdicts.ledgers import TTFT, changed, gate, ledger
from trtgate.profile import MetricLimit
from trtgate.verdicts.judge import judge
from trtgate.verdicts.render import annotations, verdict_junit, verdict_markdown, verdict_table

GOLDEN = Path(__file__).parent / "golden"
POLICY = gate(
    TTFT,
    MetricLimit(metric="itl_ms", quantile="p99"),
    MetricLimit(metric="e2e_ms", quantile="p95", critical=False),
)
NOISE = np.array([0.03, -0.03, 0.04, -0.04, 0.02, -0.02])
HOSTILE = "\x1b[31m<oom> | a & b\x00\r\n" + "y" * 5000


def verdicts():
    return {
        "pass": judge(ledger(np.log(1.031) + NOISE, POLICY)),
        "fail": judge(ledger(np.log(1.3) + NOISE, POLICY)),
        "inconclusive": judge(ledger([0.2, -0.2] * 6, POLICY)),
        "invalid": judge(changed(ledger(NOISE, POLICY), 2, invalid=("clocks throttled on device 0",))),
        "crash": judge(
            changed(ledger(NOISE[:1], POLICY), 1, failure="out of memory while capturing size 64")
        ),
    }


RENDERERS = {"txt": verdict_table, "md": verdict_markdown, "xml": verdict_junit}


@pytest.mark.parametrize("kind", RENDERERS)
@pytest.mark.parametrize("name", verdicts())
def test_each_verdict_is_rendered_as_its_golden_copy(name, kind):
    assert RENDERERS[kind](verdicts()[name]) == (GOLDEN / f"{name}.{kind}").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", verdicts())
def test_a_table_fits_eighty_columns(name):
    lines = verdict_table(verdicts()[name]).splitlines()
    assert max(map(len, lines)) <= 80
    assert not any(line.endswith(" ") for line in lines)


@pytest.mark.parametrize(
    ("name", "failures", "errors"),
    [("pass", 0, 0), ("fail", 3, 0), ("inconclusive", 3, 0), ("crash", 2, 0)],
)
def test_junit_counts_are_red_exactly_where_the_verdict_is(name, failures, errors):
    root = ET.fromstring(verdict_junit(verdicts()[name]))
    assert (root.get("failures"), root.get("errors")) == (str(failures), str(errors))
    assert len(root.findall(".//failure")) == failures


def test_inconclusive_is_a_failure_of_its_own_type():
    first = ET.fromstring(verdict_junit(verdicts()["inconclusive"])).find(".//testcase/failure")
    assert first.get("type") == "inconclusive"


def test_invalid_is_an_error():
    root = ET.fromstring(verdict_junit(verdicts()["invalid"]))
    assert root.find(".//testcase[@name='INVALID']/error") is not None
    assert root.find(".//testcase[@name='pair 2']/error") is not None


def test_a_replaced_pair_does_not_make_a_pass_red():
    verdict = judge(changed(ledger([0.0] * 7), 2, invalid=("clocks throttled",)))
    assert verdict.result == "pass"
    assert ET.fromstring(verdict_junit(verdict)).get("errors") == "0"


def test_what_a_server_wrote_cannot_break_any_rendering():
    verdict = judge(changed(ledger([0.0]), 1, failure=HOSTILE))
    table, markdown, junit = verdict_table(verdict), verdict_markdown(verdict), verdict_junit(verdict)
    for text in (table, markdown, junit, *annotations(verdict)):
        assert "\x1b" not in text
        assert "\x00" not in text
        assert len(text) < 20_000
    assert max(map(len, table.splitlines())) <= 80
    assert "&lt;oom>" in markdown
    assert "\\| a &amp; b" in markdown
    assert "<oom>" in ET.fromstring(junit).find(".//failure").get("message")
    assert all("\n" not in line for line in annotations(verdict))


def test_markdown_stays_below_one_mebibyte():
    verdict = judge(changed(ledger([0.0]), 1, failure="x" * 100_000))
    many = verdict.model_copy(update={"findings": verdict.findings * 50, "cannot_prove": ("z" * 5000,) * 500})
    text = verdict_markdown(many)
    sizes = (len(text.encode()), text.count("and 300 more"))
    assert sizes[0] < 1 << 20
    assert sizes[1] == 2


def test_annotations_name_each_failed_metric_once_and_ten_at_most():
    lines = annotations(verdicts()["fail"])
    assert [line.split("::")[1] for line in lines] == ["error title=ttft_ms p95", "error title=itl_ms p99"]
    verdict = verdicts()["fail"]
    many = verdict.model_copy(update={"metrics": verdict.metrics * 20})
    assert len(annotations(many)) == 10
    assert annotations(verdicts()["pass"]) == []
