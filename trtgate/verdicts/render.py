"""A verdict as a table of 80 columns, as Markdown for a CI summary, as JUnit XML and as annotations."""

import re
from collections.abc import Iterable, Sequence
from textwrap import wrap
from xml.etree import ElementTree as ET

from trtgate.verdicts.checks import Finding
from trtgate.verdicts.judge import Verdict
from trtgate.verdicts.metrics import MetricVerdict
from trtgate.verdicts.words import counted

WIDTH = 80
MAX_ROWS = 200  # a step summary of GitHub Actions may have 1 MiB
MAX_TEXT = 1000
MAX_ANNOTATIONS = 10  # of a kind and step are shown there
COLUMNS = ("metric", "baseline", "candidate", "ratio", "bound", "limit", "pairs", "state")

_CONTROL = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\x7f|[\x80-\x9f]")


def verdict_table(verdict: Verdict) -> str:
    """Plain text, 80 columns: verdict and reason, metrics, hard gates, what the measurement cannot prove."""
    lines = [_title(verdict), *_wrapped(verdict.reason), ""]
    rows = [_cells(metric) for metric in verdict.metrics]
    widths = [max(len(row[i]) for row in (COLUMNS, *rows)) for i in range(len(COLUMNS))]
    lines += [_aligned(row, widths) for row in (COLUMNS, *rows)]
    lines.append("")
    for finding in verdict.findings:
        lines += _wrapped(f"{finding.state:<8}{finding.check}: {finding.message}", indent=8)
    lines += ["", "this measurement cannot prove:"]
    for line in verdict.cannot_prove:
        lines += _wrapped(f"- {line}", indent=2)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def verdict_markdown(verdict: Verdict) -> str:
    """Markdown for a step summary, far below 1 MiB whatever the messages hold."""
    head = "| " + " | ".join(COLUMNS) + " |"
    rule = "|" + "|".join([" --- ", *[" ---: "] * 6, " --- "]) + "|"
    rows = [_row(_cells(metric)) for metric in verdict.metrics[:MAX_ROWS]]
    findings = [_row((f.state, f.check, _message(f))) for f in verdict.findings[:MAX_ROWS]]
    limits = [f"- {_escaped(line)}" for line in verdict.cannot_prove[:MAX_ROWS]]
    digests = (verdict.ledger_sha256, verdict.policy_sha256, verdict.candidate_sha256)
    ledger, policy, candidate = (f"`{_escaped(digest[:12])}`" for digest in digests)
    against = f"candidate {candidate} against {_escaped(verdict.baseline)}"
    blocks = [
        [f"## {_escaped(_title(verdict))}"],
        [_escaped(verdict.reason)],
        [head, rule, *rows, *_more(verdict.metrics)],
        ["| state | check | finding |", "| --- | --- | --- |", *findings, *_more(verdict.findings)],
        ["This measurement cannot prove:"],
        [*limits, *_more(verdict.cannot_prove)],
        [f"Ledger {ledger}, policy {policy}, {against}."],
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def verdict_junit(verdict: Verdict) -> str:
    """JUnit XML: a test case for the verdict, each metric and each finding.

    FAIL is a failure, INCONCLUSIVE a failure of type "inconclusive" (skipped would look green), INVALID an
    error. A pair that was replaced, or a check still open, on the way to another result is neither.
    """
    suite = ET.Element("testsuite", name=f"trtgate {verdict.name}")
    _case(suite, "verdict", verdict.result.upper(), _clean(verdict.reason), verdict.result)
    for metric in verdict.metrics:
        _case(suite, "metric", metric.name, _clean(metric.detail), _junit_state(metric.state))
    for finding in verdict.findings:
        state = _junit_state(finding.state) if _decided(finding, verdict) else "pass"
        _case(suite, "check", finding.check, _clean(_message(finding)), state)
    counts = {kind: str(len(suite.findall(f"testcase/{kind}"))) for kind in ("failure", "error")}
    tests = str(len(suite.findall("testcase")))
    for element in (suite, root := ET.Element("testsuites", name="trtgate")):
        element.attrib |= {"tests": tests, "failures": counts["failure"], "errors": counts["error"]}
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def annotations(verdict: Verdict) -> list[str]:
    """Workflow commands of GitHub Actions, one for each failed or open metric and gate, ten of a kind."""
    level = {"failed": "error", "invalid": "warning", "open": "warning"}
    found: list[tuple[str, str, str]] = [(m.state, m.name, m.detail) for m in verdict.metrics]
    found += [(f.state, f.check, _message(f)) for f in verdict.findings if _decided(f, verdict)]
    lines: dict[str, list[str]] = {"error": [], "warning": []}
    for state, name, text in found:
        if state in level:
            kind = level[state]
            lines[kind].append(f"::{kind} title={_property(name)}::{_data(text)}")
    return [line for kind in lines for line in lines[kind][:MAX_ANNOTATIONS]]


def _decided(finding: Finding, verdict: Verdict) -> bool:
    """Tell whether a finding is of the kind that made the verdict."""
    return finding.state == "failed" or (finding.state, verdict.result) in (
        ("open", "inconclusive"),
        ("invalid", "invalid"),
    )


def _title(verdict: Verdict) -> str:
    look = f"look {verdict.look}" if verdict.look else "before the first look"
    pairs = counted(verdict.pairs_valid, "valid pair")
    return f"{verdict.result.upper()} (exit {int(verdict.exit_code)}): {verdict.name}, {look}, {pairs}"


def _cells(metric: MetricVerdict) -> tuple[str, ...]:
    bound = metric.lower_ratio if metric.state == "failed" else metric.upper_ratio
    return (
        metric.name,
        _number(metric.baseline_ms, ".4g"),
        _number(metric.candidate_ms, ".4g"),
        _number(metric.ratio, ".3f"),
        _number(bound, ".3f"),
        _number(metric.limit_ratio, ".3f"),
        str(metric.pairs),
        metric.state,
    )


def _number(value: float | None, spec: str) -> str:
    if value is None:
        return "-"
    return format(value, spec) if value < 1e6 else ">1e6"


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    middle = (cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True))
    return "  ".join([row[0].ljust(widths[0]), *middle, row[-1]])


def _wrapped(text: str, indent: int = 0) -> list[str]:
    return wrap(_clean(text), WIDTH, subsequent_indent=" " * indent) or [""]


def _message(finding: Finding) -> str:
    return f"{finding.message} ({finding.hint})" if finding.hint else finding.message


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(_escaped, cells)) + " |"


def _more(rows: Sequence[object]) -> list[str]:
    return [f"and {len(rows) - MAX_ROWS} more"] if len(rows) > MAX_ROWS else []


def _clean(text: str) -> str:
    """Drop what neither a terminal nor XML may be given: messages may quote the log of a server."""
    kept = _CONTROL.sub("", text)
    return kept if len(kept) <= MAX_TEXT else kept[:MAX_TEXT] + " ..."


def _escaped(text: str) -> str:
    flat = " ".join(_clean(text).split())
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


def _data(text: str) -> str:
    return _clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _junit_state(state: str) -> str:
    return {"failed": "fail", "open": "inconclusive", "invalid": "invalid"}.get(state, "pass")


def _case(suite: ET.Element, group: str, name: str, text: str, state: str) -> None:
    case = ET.SubElement(suite, "testcase", classname=f"{suite.get('name')}.{group}", name=_clean(name))
    if state in ("fail", "inconclusive"):
        ET.SubElement(case, "failure", type=state, message=text)
    elif state == "invalid":
        ET.SubElement(case, "error", type=state, message=text)
    else:
        ET.SubElement(case, "system-out").text = text
