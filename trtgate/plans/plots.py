"""Pictures of histograms and plans: plain text for a terminal, SVG or PNG through matplotlib."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtgate.errors import UsageError
from trtgate.plans.costs import CostCurve
from trtgate.plans.grid import GridPlan
from trtgate.plans.histogram import Bins, Histogram

BAR = 40
ROWS = 16
TITLES = {"decode": "decode steps by requests", "tokens": "steps with context by tokens"}


def text_plot(bins: Bins, buckets: Sequence[int] = ()) -> str:
    """One line a group of sizes: share as a bar, running share, and the buckets that lie in the group.

    Sizes stand in at most 16 groups, each size alone where there are no more; bins that are not exact count at their
    upper ends.
    """
    if not bins.steps:
        return "no steps\n"
    edges = _edges(max((*bins.high, *buckets)))
    places = np.searchsorted(edges, np.asarray(bins.high))
    shares = np.bincount(places, weights=bins.steps, minlength=len(edges)) / bins.total
    running = np.cumsum(shares)
    names = [_range(low + 1, high) for low, high in zip((0, *edges[:-1]), edges, strict=True)]
    width = max(len(name) for name in names)
    lines = []
    for place, name in enumerate(names):
        bar = "#" * round(BAR * shares[place] / shares.max())
        held = [str(bucket) for bucket in buckets if np.searchsorted(edges, bucket) == place]
        mark = f"  < {' '.join(held)}" if held else ""
        lines.append(
            f"{name:>{width}}  {shares[place]:6.2%}  {running[place]:7.2%}  {bar:<{BAR}}{mark}".rstrip()
        )
    return "\n".join(lines) + "\n"


def plot_histogram(
    histogram: Histogram, path: Path, *, decode_buckets: Sequence[int] = (), token_buckets: Sequence[int] = ()
) -> None:
    """Draw both distributions with their running shares and the chosen buckets into `path` (.svg or .png)."""
    figure, axes = _figure(path, columns=2)
    for axis, kind, buckets in zip(axes, ("decode", "tokens"), (decode_buckets, token_buckets), strict=True):
        bins = histogram.bins("decode" if kind == "decode" else "tokens")
        axis.set(title=TITLES[kind], xlabel="size", ylabel="share of steps")
        if not bins.steps:
            continue
        sizes, shares = np.asarray(bins.high), np.asarray(bins.steps) / bins.total
        axis.vlines(sizes, 0, shares, color="tab:blue", linewidth=1)
        order = np.argsort(sizes, kind="stable")
        beside = axis.twinx()
        beside.step(sizes[order], np.cumsum(shares[order]), where="post", color="tab:gray")
        beside.set(ylabel="running share", ylim=(0, 1.02))
        for bucket in buckets:
            axis.axvline(bucket, color="tab:red", linewidth=0.8, linestyle=":")
    _save(figure, path)


def plot_plan(plan: GridPlan, path: Path, *, replay: CostCurve, eager: CostCurve) -> None:
    """Draw step time against the number of graphs, and the two cost curves with the buckets, into `path`."""
    figure, (left, right) = _figure(path, columns=2)
    counts = [len(row.buckets) for row in plan.rows]
    left.plot(counts, [row.step_ms for row in plan.rows], marker=".", label="fitted part")
    later = [row.held_out_step_ms for row in plan.rows]
    if None not in later:
        left.plot(counts, later, marker=".", label="held out part")
    for row in plan.alternatives:
        left.plot(len(row.buckets), row.step_ms, marker="x", linestyle="none", label=row.name)
    left.axvline(len(plan.buckets), color="tab:red", linewidth=0.8, linestyle=":")
    left.set(title=f"{plan.kind}: mean step ({plan.basis})", xlabel="graphs", ylabel="ms")
    left.legend()
    sizes = np.arange(1, max(plan.above.largest_size, *plan.buckets, 2) + 1)
    right.plot(sizes, eager.at(sizes), label="eager")
    right.plot(sizes, replay.at(sizes), label="replay")
    right.step(sizes, _paid(sizes, plan.buckets, replay, eager), where="mid", label="paid under this grid")
    right.set(title="cost of a step", xlabel="size", ylabel="ms")
    right.legend()
    _save(figure, path)


def _paid(
    sizes: NDArray[np.int64], buckets: tuple[int, ...], replay: CostCurve, eager: CostCurve
) -> NDArray[np.float64]:
    places = np.searchsorted(np.asarray(buckets, np.int64), sizes)
    padded = np.asarray((*buckets, 1))[places]
    return np.where(places < len(buckets), replay.at(padded), eager.at(sizes))


def _edges(largest: int) -> NDArray[np.int64]:
    """The upper ends of at most `ROWS` groups up to `largest`: single sizes, or steps of a round number."""
    wide = -(-largest // ROWS)
    unit = 10 ** max(len(str(wide)) - 1, 0)
    step = next(unit * factor for factor in (1, 2, 3, 4, 5, 8, 10) if unit * factor >= wide)
    return np.append(np.arange(step, largest, step), largest)


def _range(low: int, high: int) -> str:
    return str(high) if low == high else f"{low}..{high}"


def _figure(path: Path, columns: int) -> tuple[Any, Any]:
    if path.suffix not in {".svg", ".png"}:
        raise UsageError(f"`{path}` is not a picture", "end the name with `.svg` or `.png`")
    try:
        figures = import_module("matplotlib.figure")
    except ImportError as error:
        raise UsageError("`matplotlib` is not installed", "install `trtgate[plot]`") from error
    figure = figures.Figure(figsize=(6 * columns, 4), layout="constrained")
    return figure, figure.subplots(1, columns)


def _save(figure: Any, path: Path) -> None:  # noqa: ANN401 - matplotlib is optional
    path.parent.mkdir(parents=True, exist_ok=True)
    with import_module("matplotlib").rc_context(
        {"svg.hashsalt": "trtgate"}
    ):  # equal pictures are equal files
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
