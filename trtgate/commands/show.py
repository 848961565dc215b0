"""Plans, warm-up reports, verdicts and releases as text of at most 80 columns."""

from pathlib import Path
from textwrap import fill

from trtgate.console import WIDTH, mebibytes, percent, size_list, table
from trtgate.evidence.report import WarmupReport
from trtgate.plans.grid import GridPlan
from trtgate.plans.plan import Plan
from trtgate.plans.table import as_text, explain, weigh_buckets
from trtgate.releases.candidate import Candidate
from trtgate.releases.choice import costs_of
from trtgate.releases.manifest import Release
from trtgate.releases.store import SHORT
from trtgate.verdicts.judge import Verdict
from trtgate.verdicts.render import verdict_table


def show_plan(candidate: Candidate, plan: Plan) -> str:
    """What was read, what was chosen and what stands beside it."""
    lines = [f"plan {plan.digest[:SHORT]} of `{plan.name}` in {candidate.folder}", ""]
    for source in plan.trace:
        dropped = ", ".join(f"{count} {reason}" for reason, count in source.dropped.items()) or "none"
        counts = f"read {source.read}, kept {source.kept}, dropped {dropped}"
        lines.append(paragraph(f"trace  {source.name} ({source.format}): {counts}"))
        lines.extend(paragraph(f"note: {note}", "       ") for note in source.notes)
    for title, grid in (
        ("decode graphs, by requests of a step", plan.decode),
        ("token graphs, by tokens of a step", plan.tokens),
    ):
        if grid is not None:
            lines += [
                "",
                f"{title} (costs: {grid.basis})",
                as_text(grid, around=1).rstrip(),
                paragraph(grid.reason),
            ]
            lines.append(paragraph(_above(grid)))
    lines += [
        "",
        f"decode sizes  {size_list(plan.effective_decode)}",
        f"token sizes   {size_list(plan.effective_tokens)}",
    ]
    lines.extend(paragraph(finding) for finding in plan.findings)
    lines.append(f"files         {', '.join(str(candidate.config_folder / name) for name in plan.files)}")
    return "\n".join(lines)


def _above(grid: GridPlan) -> str:
    if grid.above.share <= 0:
        return f"no step of the trace is above the largest bucket, {grid.above.bucket}"
    return (
        f"above {grid.above.bucket}: {percent(grid.above.share)} of the steps run eager, "
        f"{grid.above.step_ms:.3f} ms each, up to size {grid.above.largest_size}"
    )


def show_explanation(candidate: Candidate, plan: Plan) -> str:
    """The whole tables, why each bucket is there and what removing it would cost."""
    costs, histogram = candidate.costs(), candidate.histogram()
    parts = []
    for grid in (plan.decode, plan.tokens):
        if grid is not None:
            kind = costs_of(costs, grid.kind)
            bins = histogram.bins(grid.kind)
            worths = weigh_buckets(grid, bins, kind.replay, kind.eager, memory=kind.memory)
            parts += ["", f"{grid.kind}:", as_text(grid).rstrip(), "", paragraphs(explain(grid, worths))]
    return "\n".join(parts)


def draw_plan(candidate: Candidate, plan: Plan, path: Path) -> tuple[Path, ...]:
    """One picture for each kind of graph, beside each other; returns their paths."""
    from trtgate.plans.plots import plot_plan

    drawn = []
    for grid in filter(None, (plan.decode, plan.tokens)):
        costs = costs_of(candidate.costs(), grid.kind)
        target = path.with_name(f"{path.stem}-{grid.kind}{path.suffix}")
        plot_plan(grid, target, replay=costs.replay, eager=costs.eager)
        drawn.append(target)
    return tuple(drawn)


def show_warmup(report: WarmupReport) -> str:
    """The proof of each bucket, the start-up times, and what happens above the largest."""
    rows = [
        (
            proof.title,
            {None: "unknown", True: "yes", False: "no"}[proof.captured],
            proof.hits,
            _ms(proof.cold_ms),
            _ms(proof.median_ms),
            f"{proof.answers_checked - proof.answers_wrong}/{proof.answers_checked}",
            "valid" if proof.valid else "INVALID",
        )
        for proof in report.buckets
    ]
    lines = [table(("bucket", "captured", "hits", "first ms", "median ms", "right", "state"), rows)]
    for probe in report.probes:
        how = "replayed" if probe.replayed else "eager"
        lines.append(f"above the largest: {probe.kind} {probe.size} runs {how}, {_ms(probe.median_ms)} ms")
    phases = ", ".join(f"{name} {value:.0f}" for name, value in report.phases_ms.items())
    lines.append(
        paragraph(f"start, ms: {phases}; memory {mebibytes(report.memory_bytes)}; {_capacity(report)}")
    )
    lines.extend(paragraph(finding) for finding in report.findings)
    lines.append(paragraph(f"{'proven' if report.passed else 'FAILED'}: {report.reason}"))
    return "\n".join(lines)


def _capacity(report: WarmupReport) -> str:
    if report.kv_tokens is None:
        return "KV capacity not reported"
    return f"{report.kv_tokens} KV tokens, {report.sequences} sequences of full length"


def show_verdict(verdict: Verdict) -> str:
    """The verdict with every number behind it."""
    return verdict_table(verdict)


def show_release(release_id: str, release: Release, folder: Path) -> str:
    """What a release holds, in a few lines."""
    platform = release.platform
    rows = [
        ("release", f"{release_id[:SHORT]}  version {release.version} of `{release.name}`"),
        ("sealed", f"{release.created} by {release.who}"),
        ("parent", (release.parent or "none")[:SHORT]),
        ("runtime", f"{release.runtime.kind} {release.runtime.version_reported}"),
        ("model", f"{release.model.path}  {release.model.sha256[:SHORT]}"),
        ("driver", platform.driver or platform.gpu_note),
        ("CUDA", platform.cuda_driver or "absent"),
        ("machine", platform.title),
        (
            "verdict",
            f"{release.verdict.result} against {release.verdict.baseline}, {release.verdict.pairs} pairs",
        ),
        ("files", f"{len(release.files)}, each with its sha256"),
        ("folder", str(folder)),
    ]
    return "\n".join(f"{name:<9}{value}" for name, value in rows)


def paragraphs(text: str) -> str:
    """Several lines, each folded."""
    return "\n".join(paragraph(line) for line in text.splitlines())


def paragraph(text: str, indent: str = "") -> str:
    """Text folded at 80 columns."""
    return fill(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
