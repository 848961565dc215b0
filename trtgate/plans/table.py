"""The table of a grid plan as plain text, and why each bucket is in the grid."""

from collections.abc import Sequence

from trtgate.plans.budget import KvBudget
from trtgate.plans.costs import CostCurve, GraphMemory
from trtgate.plans.grid import GridPlan, GridRow
from trtgate.plans.histogram import Bins
from trtgate.plans.weights import Weights
from trtgate.record import Record

MIB = 1 << 20
HEAD = ("grid", "step ms", "later", "cover", "pad", "MiB", "capt s", "seqs")


class BucketWorth(Record):
    """What one bucket does: steps of `lowest..bucket` go to it, and removing it costs `extra_ms` a mean step.

    `share` is that of all steps, `padding` padded over real size of its own steps. Without it, its steps pay
    `instead`: the next bucket, or 0 for eager. `freed_bytes` is the graph memory that comes back.
    """

    bucket: int
    lowest: int
    share: float
    padding: float
    instead: int
    extra_ms: float
    freed_bytes: int
    freed_kv_tokens: int | None = None


def weigh_buckets(
    plan: GridPlan,
    fit: Bins,
    replay: CostCurve,
    eager: CostCurve,
    *,
    memory: GraphMemory,
    kv: KvBudget | None = None,
) -> tuple[BucketWorth, ...]:
    """The worth of each bucket of the chosen grid, ascending; the arguments are those of `choose_grid`."""
    weights = Weights.of(fit, eager)
    whole = weights.outcome(plan.buckets, replay)
    found = []
    for place, bucket in enumerate(plan.buckets):
        rest = plan.buckets[:place] + plan.buckets[place + 1 :]
        below = plan.buckets[place - 1] if place else 0
        steps, sizes = weights.between(below, bucket)
        left_bytes = memory.of(len(rest), max(rest, default=0))
        found.append(
            BucketWorth(
                bucket=bucket,
                lowest=below + 1,
                share=steps / weights.total,
                padding=bucket * steps / sizes if sizes else 1.0,
                instead=rest[place] if place < len(rest) else 0,
                extra_ms=weights.outcome(rest, replay).step_ms - whole.step_ms,
                freed_bytes=plan.row.graph_bytes - left_bytes,
                freed_kv_tokens=kv.tokens(left_bytes) - kv.tokens(plan.row.graph_bytes) if kv else None,
            )
        )
    return tuple(found)


def explain(plan: GridPlan, worths: Sequence[BucketWorth]) -> str:
    """The reason of the choice, then a line on each bucket and on what happens above the largest."""
    lines = [plan.reason, *(_worth_line(plan, worth) for worth in worths)]
    above = plan.above
    if above.share > 0:
        lines.append(
            f"above {above.bucket}: {above.share:.2%} of steps (up to {above.largest_size}) run eagerly "
            f"at {above.step_ms:.3f} ms"
        )
    if plan.step_range_ms:
        least, most = plan.step_range_ms
        lines.append(f"sizes are known as ranges only: the mean step is {least:.3f} to {most:.3f} ms")
    beyond = f", above {plan.extrapolated_above} extrapolated" if plan.extrapolated_above else ""
    lines.append(f"step times are {plan.basis}{beyond}")
    return "\n".join(lines) + "\n"


def as_text(plan: GridPlan, around: int | None = None) -> str:
    """The rows, the chosen one marked `>`, Pareto rows `*`, those over budget `!`, then the alternatives.

    `later` is the step time on the held-out part, `cover` the share of steps that are replayed, `pad` padded over
    real size, `seqs` the sequences that fit beside the graphs. `around` keeps only so many rows beside the chosen.
    """
    shown = range(len(plan.rows))
    if around is not None:
        shown = range(max(0, plan.chosen - around), min(len(plan.rows), plan.chosen + around + 1))
    rows = [_cells(plan.rows[place], mark=">" if place == plan.chosen else " ") for place in shown]
    others = [_cells(row, mark=" ") for row in plan.alternatives]
    widths = [max(len(line[column]) for line in (HEAD, *rows, *others)) for column in range(len(HEAD))]
    rule = "  ".join("-" * width for width in widths)
    lines = [_line(HEAD, widths), rule, *(_line(row, widths) for row in rows), rule]
    lines += [_line(row, widths) for row in others]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _worth_line(plan: GridPlan, worth: BucketWorth) -> str:
    sizes = str(worth.bucket) if worth.lowest == worth.bucket else f"{worth.lowest}..{worth.bucket}"
    instead = f"pad to {worth.instead}" if worth.instead else "run eagerly"
    extra = f"{worth.extra_ms:+.4f} ms a step ({worth.extra_ms / plan.row.step_ms:+.2%})"
    freed = f"{worth.freed_bytes / MIB:.1f} MiB"
    if worth.freed_kv_tokens is not None:
        freed += f" = {worth.freed_kv_tokens} KV tokens"
    return (
        f"{worth.bucket}: {worth.share:.2%} of steps ({sizes}), padding {worth.padding:.3f}; without it they "
        f"{instead}: {extra}, frees {freed}"
    )


def _cells(row: GridRow, mark: str) -> tuple[str, ...]:
    return (
        f"{mark}{'*' if row.pareto else ' '}{' ' if row.fits else '!'} {row.name}",
        f"{row.step_ms:.3f}",
        "-" if row.held_out_step_ms is None else f"{row.held_out_step_ms:.3f}",
        f"{row.coverage:.1%}",
        f"{row.padding:.3f}",
        f"{row.graph_bytes / MIB:.1f}",
        f"{row.capture_s:.1f}",
        "-" if row.sequences is None else str(row.sequences),
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    figures = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    return "  ".join((cells[0].ljust(widths[0]), *figures))
