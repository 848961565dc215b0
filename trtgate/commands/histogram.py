"""`trtgate histogram`: how many steps of each size a service runs, from files or from a live server."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trtgate.commands.build import AnyPlatformOption
from trtgate.commands.options import CostsOption, FormatOption, JsonOption, QuietOption
from trtgate.console import WIDTH, Console

if TYPE_CHECKING:
    from trtgate.commands.sources import Rules
    from trtgate.plans.histogram import Bins, Histogram
    from trtgate.plans.plan import Plan
    from trtgate.traces.base import ReadOptions

FEW = 16  # bins that are shown one a line
BAR = 40

SourcesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="SOURCE...", help="Traces, logs, metrics; with `--merge` histograms."),
]
ColumnsOption = Annotated[
    str | None, typer.Option("--columns", help="Of a plain table: time=NAME,prompt=NAME,output=NAME.")
]
TimeUnitOption = Annotated[
    Literal["s", "ms"] | None, typer.Option("--time-unit", help="Unit of numeric times.")
]
MetricOption = Annotated[
    str | None, typer.Option("--metric", help="Which histogram of a Prometheus page; default: vLLM's tokens.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="For formats that are sampled.")]
ProfileOption = Annotated[
    Path | None, typer.Option("--profile", help="Limits, replicas, speed-up and costs of a deployment.")
]
BatchOption = Annotated[
    int | None, typer.Option("--max-batch-size", min=1, help="Requests that a replica holds.")
]
TokensOption = Annotated[
    int | None, typer.Option("--max-num-tokens", min=1, help="Tokens that a step holds.")
]
LengthOption = Annotated[
    int | None, typer.Option("--max-seq-len", min=2, help="Prompt and answer of a request together.")
]
ReplicasOption = Annotated[
    int | None, typer.Option("--replicas", min=1, help="Replicas that share the trace.")
]
SpeedUpOption = Annotated[float | None, typer.Option("--speed-up", help="Divide the gaps between arrivals.")]
DraftOption = Annotated[int | None, typer.Option("--draft-len", min=0, help="Draft tokens of a request.")]
ConcurrencyOption = Annotated[
    int | None, typer.Option("--concurrency", min=1, help="Requests under way, for lists of lengths.")
]
ChunkedOption = Annotated[
    bool, typer.Option("--chunked-prefill/--no-chunked-prefill", help="Whether prompts may be split.")
]
EndpointOption = Annotated[
    str | None, typer.Option("--endpoint", metavar="URL", help="Record from a live server instead.")
]
ForOption = Annotated[str, typer.Option("--for", metavar="TIME", help="How long: 90s, 10m, 2h.")]
LiveOption = Annotated[
    Literal["tensorrt-llm", "vllm", "reference"] | None,
    typer.Option("--runtime", help="What the server is; default: seen from its answer."),
]
RawOption = Annotated[Path | None, typer.Option("--raw", help="Append what the server said to this file.")]
MergeOption = Annotated[bool, typer.Option("--merge", help="The sources are histograms; add them up.")]
OutOption = Annotated[Path, typer.Option("--out", help="Where to write the histogram.")]
PlotOption = Annotated[Path | None, typer.Option("--plot", help="Draw it too, as .svg or .png.")]
PlanOption = Annotated[Path | None, typer.Option("--plan", help="A `plan.json`, whose buckets are drawn.")]
ProcessesOption = Annotated[int, typer.Option("--processes", min=1, help="Local processes that read.")]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", metavar="ADDRESS", help="A Dask scheduler: tcp://HOST:8786.")
]


def histogram(
    sources: SourcesArgument = None,
    trace_format: FormatOption = None,
    columns: ColumnsOption = None,
    time_unit: TimeUnitOption = None,
    metric: MetricOption = None,
    seed: SeedOption = 0,
    profile: ProfileOption = None,
    max_batch_size: BatchOption = None,
    max_num_tokens: TokensOption = None,
    max_seq_len: LengthOption = None,
    replicas: ReplicasOption = None,
    speed_up: SpeedUpOption = None,
    draft_len: DraftOption = None,
    concurrency: ConcurrencyOption = None,
    chunked_prefill: ChunkedOption = True,
    costs: CostsOption = None,
    any_platform: AnyPlatformOption = False,
    endpoint: EndpointOption = None,
    span: ForOption = "10m",
    runtime: LiveOption = None,
    raw: RawOption = None,
    merge: MergeOption = False,
    out: OutOption = Path("histogram.json"),
    plot: PlotOption = None,
    plan: PlanOption = None,
    processes: ProcessesOption = 1,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Count the steps of each size: from traces, logs, metrics, or a live server."""
    from trtgate.commands.sources import merge_files, read_sources, rules_of

    given = {
        "max_batch_size": max_batch_size,
        "max_num_tokens": max_num_tokens,
        "max_seq_len": max_seq_len,
        "replicas": replicas,
        "speed_up": speed_up,
        "draft_len": draft_len,
        "concurrency": concurrency,
    }
    console, drawn = Console(as_json, quiet), _plan(plan)
    rules = rules_of(profile, given, costs, chunked=chunked_prefill, any_platform=any_platform)
    names = _sources(sources or [], rules, endpoint, out)
    options = _options(columns, time_unit, seed, draft_len or rules.limits.draft_len, metric)
    if endpoint is not None:
        _require_writable(out)
        made = _record(endpoint, span, runtime, raw, rules, options, console)
    elif merge:
        made = merge_files(names)
    else:
        word = trace_format or (None if sources or rules.profile is None else rules.profile.traffic.format)
        made = read_sources(names, rules, options, word=word, processes=processes, cluster=cluster)
    made.write(out)
    _draw(made, plot, drawn)
    console.record(made.model_dump(mode="json"))
    console.show(_text(made, rules, drawn, out))


def _plan(path: Path | None) -> "Plan | None":
    from trtgate.plans.plan import Plan

    return None if path is None else Plan.read(path)


def _sources(sources: list[str], rules: "Rules", endpoint: str | None, out: Path) -> list[str]:
    """The sources, or the profile's trace where none is given; refuses what would read and write one file."""
    from trtgate.errors import UsageError

    if endpoint is not None:
        if sources:
            raise UsageError("files and `--endpoint` exclude each other", "merge the two with `--merge`")
        return []
    if not sources and rules.profile is not None and rules.profile.traffic.trace is not None:
        sources = [str(rules.profile.traffic.trace)]
    if not sources:
        raise UsageError("there is nothing to read", "give files, or `--endpoint URL` for a live server")
    if out.resolve() in {Path(source).resolve() for source in sources}:
        raise UsageError(f"`{out}` would be overwritten by its own sum", "give another `--out`")
    return sources


def _require_writable(out: Path) -> None:
    """Refuse a place where nothing can be written before minutes are spent on recording."""
    from trtgate.errors import UsageError

    folder = next(folder for folder in out.absolute().parents if folder.exists())
    if out.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"`{out}` cannot be written", "give another `--out`")


def _options(
    columns: str | None, unit: Literal["s", "ms"] | None, seed: int, draft_len: int, metric: str | None
) -> "ReadOptions":
    from trtgate.traces.base import ColumnNames, ReadOptions

    names = None if columns is None else ColumnNames.parse(columns)
    return ReadOptions(columns=names, time_unit=unit, seed=seed, draft_len=draft_len, metric=metric)


def _record(
    endpoint: str,
    span: str,
    runtime: str | None,
    raw: Path | None,
    rules: "Rules",
    options: "ReadOptions",
    console: Console,
) -> "Histogram":
    from trtgate.evidence.recorder import record
    from trtgate.evidence.recording import Wanted, parse_span

    wanted = Wanted(
        url=endpoint,
        for_s=parse_span(span),
        runtime=runtime,
        raw=raw,
        draft_len=options.draft_len,
        metric=options.metric,
        ceiling=rules.ceiling,
    )
    return record(wanted, console)


def _draw(made: "Histogram", path: Path | None, plan: "Plan | None") -> None:
    from trtgate.plans.plots import plot_histogram

    if path is not None:
        decode, tokens = _buckets(plan)
        plot_histogram(made, path, decode_buckets=decode, token_buckets=tokens)


def _buckets(plan: "Plan | None") -> tuple[tuple[int, ...], tuple[int, ...]]:
    return ((), ()) if plan is None else (plan.effective_decode, plan.effective_tokens)


def _text(made: "Histogram", rules: "Rules", plan: "Plan | None", out: Path) -> str:
    from trtgate.commands.show import paragraph
    from trtgate.commands.sources import dropped_text, overload
    from trtgate.plans.plots import TITLES, text_plot

    lines = []
    for source in made.sources:
        unit = {"timestamp": "times as written", "none": "no times"}.get(source.time_unit, source.time_unit)
        lines.append(f"{source.name} ({source.format}, {unit}, {source.span_s:.1f} s)")
        books = f"read {source.read} = kept {source.kept} + dropped {dropped_text(source.dropped)}"
        lines.append(paragraph(books, "  "))
        lines.extend(paragraph(f"note: {note}", "  ") for note in source.notes)
    if made.limits is not None:
        lines.append(paragraph(f"limits  {_limits(made)}"))
        lines.append(paragraph(f"costs   {rules.costs_title}"))
        lines.append(f"served  {made.requests} requests, refused {dropped_text(made.refused)}")
    if (late := overload(made, rules)) is not None:
        lines.append(paragraph(late))
    both = zip((made.decode, made.tokens), TITLES.values(), _buckets(plan), strict=True)
    for bins, title, buckets in both:
        lines += ["", f"{title}: {bins.total}{'' if bins.exact else ', known as ranges'}"]
        few = 0 < len(bins.low) <= FEW and not buckets
        drawn = _each(bins) if few else text_plot(bins, buckets)
        lines += [_cut(line) for line in drawn.splitlines()]
    return "\n".join([*lines, "", f"{made.origin}, written to `{out}`"])


def _each(bins: "Bins") -> str:
    """One line a bin, as `text_plot` has it for groups of them."""
    names = [
        str(low) if low == high else f"{low}..{high}" for low, high in zip(bins.low, bins.high, strict=True)
    ]
    width, most, running, lines = max(map(len, names)), max(bins.steps), 0, []
    for name, steps in zip(names, bins.steps, strict=True):
        running += steps
        share, so_far, bar = steps / bins.total, running / bins.total, "#" * round(BAR * steps / most)
        lines.append(f"{name:>{width}}  {share:6.2%}  {so_far:7.2%}  {bar}".rstrip())
    return "\n".join(lines)


def _limits(made: "Histogram") -> str:
    limits = made.limits
    assert limits is not None
    words = [
        f"{limits.replicas} x batch {limits.max_batch_size}",
        f"tokens {limits.max_num_tokens}",
        f"length {limits.max_seq_len}",
        "chunked prefill" if limits.chunked_prefill else "whole prompts",
    ]
    if limits.kv_tokens is not None:
        words.append(f"KV cache {limits.kv_tokens} tokens")
    if limits.draft_len:
        words.append(f"{limits.draft_len} draft tokens")
    return ", ".join(words)


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 4] + " ..."
