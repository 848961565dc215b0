"""A candidate or a sealed release as one report: plan, warm-up and platform in short, then the verdict."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from xml.etree import ElementTree as ET

from trtgate.console import WIDTH, mebibytes, size_list
from trtgate.errors import IntegrityError, UsageError
from trtgate.evidence.report import WarmupReport
from trtgate.plans.plan import Plan
from trtgate.record import sha256_file
from trtgate.releases.candidate import VERDICT, WARMUP, Candidate, open_candidate
from trtgate.releases.manifest import MANIFEST, Release
from trtgate.releases.seal import checked_verdict
from trtgate.releases.store import SHORT, Store
from trtgate.verdicts.judge import Verdict
from trtgate.verdicts.render import verdict_junit, verdict_markdown, verdict_table
from trtgate.verdicts.words import counted

MAX_SUMMARY_BYTES = 1 << 20  # what GitHub Actions shows of one step
_MAX_CELL = 300


@dataclass(frozen=True, slots=True)
class Report:
    """What is known of one folder; `None` for each step that was not done, `release` for a candidate."""

    folder: Path
    plan: Plan
    warmup: WarmupReport | None
    verdict: Verdict | None
    release: Release | None


def read_report(folder: Path) -> Report:
    """Read a candidate folder or a sealed release; refuses what does not belong together or was changed."""
    folder = open_candidate(folder).folder.resolve()
    release = _verified(folder) if (folder / MANIFEST).is_file() else None
    candidate = Candidate(folder)
    plan = candidate.plan()
    warmup = candidate.warmup() if candidate.path(WARMUP).is_file() else None
    verdict = None
    if candidate.path(VERDICT).is_file():  # a sealed one stays as it was judged, by whatever judge
        verdict = checked_verdict(candidate) if release is None else candidate.verdict()
    return Report(folder, plan, warmup, verdict, release)


def report_markdown(report: Report) -> str:
    """Markdown: a table of facts, the buckets that are not valid, the verdict."""
    rows = [f"| {name} | {_cell(value)} |" for name, value in _facts(report)]
    blocks = ["\n".join([f"### {_cell(_title(report))}", "", "| | |", "| --- | --- |", *rows])]
    wrong = [f"- {_cell(line)}" for line in _wrong_buckets(report)]
    if wrong:
        blocks.append("\n".join(wrong))
    blocks.append("Not judged yet." if report.verdict is None else verdict_markdown(report.verdict).rstrip())
    return "\n\n".join(blocks) + "\n"


def report_text(report: Report) -> str:
    """Plain text of 80 columns."""
    facts = [(f"{name:<14}", value) for name, value in _facts(report)]
    wrong = [("", line) for line in _wrong_buckets(report)]
    lines = [_title(report)]
    for head, value in (*facts, *wrong):
        lines.append(fill(_printable(value), WIDTH, initial_indent=head, subsequent_indent=" " * 14))
    verdict = "not judged yet\n" if report.verdict is None else verdict_table(report.verdict)
    return "\n".join([*lines, "", verdict])


def report_junit(report: Report) -> str:
    """JUnit XML: a suite of the verdict, and one of the warm-up with a test case for each bucket."""
    if report.verdict is None and report.warmup is None:
        raise UsageError(
            f"there is nothing to report of `{report.folder}` yet", f"run `trtgate warmup {report.folder}`"
        )
    if report.verdict is None:
        root = ET.Element("testsuites", name="trtgate", tests="0", failures="0", errors="0")
    else:
        root = ET.fromstring(verdict_junit(report.verdict))  # noqa: S314 - our own text
    if report.warmup is not None:
        suite = _warmup_suite(report.plan.name, report.warmup)
        root.insert(0, suite)
        for count in ("tests", "failures", "errors"):
            root.set(count, str(int(root.get(count, "0")) + int(suite.get(count, "0"))))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def append_summary(path: Path, text: str) -> None:
    """Append to a step summary as much as fits into 1 MiB with what is there."""
    there = path.stat().st_size if path.exists() else 0
    room = max(MAX_SUMMARY_BYTES - there, 0)
    with path.open("ab") as file:
        file.write(text.encode()[:room].decode(errors="ignore").encode())


def _verified(folder: Path) -> Release:
    release_id = sha256_file(folder / MANIFEST)
    if folder.name != release_id[:SHORT]:
        raise IntegrityError(
            f"`{folder / MANIFEST}` is that of release `{release_id[:SHORT]}`, not of `{folder.name}`",
            "report from the folder in the store, `releases/NAME/ID`",
        )
    return Store(folder.parent.parent, folder.parent.name).verify(release_id)


def _title(report: Report) -> str:
    release = report.release
    if release is None:
        return f"candidate {report.plan.digest[:SHORT]} of {report.plan.name}"
    return f"release {release.release_id[:SHORT]} of {release.name}, version {release.version}"


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    plan, warmup, release = report.plan, report.warmup, report.release
    if release is not None:
        yield "sealed", f"{release.created} by {release.who}, parent {(release.parent or 'none')[:SHORT]}"
    yield "plan", f"{plan.digest[:SHORT]}, costs {plan.cost_basis}"
    for source in plan.trace:
        yield "traffic", f"{source.name} ({source.format}), {source.kept} of {source.read} requests"
    yield "decode sizes", size_list(plan.effective_decode)
    yield "token sizes", size_list(plan.effective_tokens)
    for finding in plan.findings:
        yield "finding", finding
    if warmup is None:
        yield "runtime", f"{plan.runtime_kind} {plan.runtime_version}"
        yield "warm-up", "not run yet"
        return
    yield "runtime", f"{plan.runtime_kind} {warmup.runtime_version}"
    yield "platform", f"{warmup.platform.title}, CUDA {warmup.platform.cuda_driver or 'absent'}"
    valid = sum(proof.valid for proof in warmup.buckets)
    state = "proven" if warmup.passed else "FAILED"
    yield "warm-up", f"{state}, {valid} of {counted(len(warmup.buckets), 'bucket')} valid: {warmup.reason}"
    if "ready" in warmup.phases_ms:
        yield "start", f"ready after {warmup.phases_ms['ready'] / 1000:.1f} s"
    kv_tokens = "unknown" if warmup.kv_tokens is None else str(warmup.kv_tokens)
    yield "memory", f"{mebibytes(warmup.memory_bytes)}, KV tokens {kv_tokens}"


def _wrong_buckets(report: Report) -> list[str]:
    proofs = () if report.warmup is None else report.warmup.buckets
    return [f"{proof.title}: {proof.why}" for proof in proofs if not proof.valid]


def _warmup_suite(name: str, warmup: WarmupReport) -> ET.Element:
    title = f"trtgate {name} warm-up"
    suite = ET.Element("testsuite", name=title)
    found = [("all buckets", warmup.passed, warmup.reason)]
    found += [(proof.title, proof.valid, proof.why) for proof in warmup.buckets]
    for case_name, passed, why in found:
        case = ET.SubElement(suite, "testcase", classname=title, name=case_name)
        if not passed:
            ET.SubElement(case, "failure", type="fail", message=_printable(why))
    failures = len(suite.findall("testcase/failure"))
    suite.attrib |= {"tests": str(len(found)), "failures": str(failures), "errors": "0"}
    return suite


def _printable(text: str) -> str:
    """One line of what a page or XML may hold; messages may quote the log of a server."""
    flat = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(flat.split())[:_MAX_CELL]


def _cell(text: str) -> str:
    return _printable(text).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
