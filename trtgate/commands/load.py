"""`trtgate load`: send a load to any endpoint, and say what the numbers are worth."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trtgate.commands.options import FormatOption, JsonOption, QuietOption
from trtgate.console import Console
from trtgate.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from trtgate.loads.selfcheck import Selfcheck

MOST = 10_000_000
UrlArgument = Annotated[
    str | None, typer.Argument(metavar="URL", help="The server, as in `http://127.0.0.1:8000`.")
]
ModelOption = Annotated[str, typer.Option("--model", help="Default: the first that the server lists.")]
TraceOption = Annotated[
    Path | None, typer.Option("--trace", help="Arrivals and lengths of real traffic, in any known format.")
]
ScaleOption = Annotated[float, typer.Option("--scale", min=1e-6, help="Lengths of the trace times this.")]
SpeedOption = Annotated[float, typer.Option("--speed-up", min=1e-6, help="Arrivals of the trace faster.")]
RateOption = Annotated[float | None, typer.Option("--rate", min=1e-6, help="Requests a second, open loop.")]
ArrivalsOption = Annotated[
    Literal["poisson", "constant", "gamma"], typer.Option("--arrivals", help="Pattern of `--rate`.")
]
BurstOption = Annotated[
    float, typer.Option("--burstiness", min=1e-3, help="For gamma: below 1 bursty, above 1 regular.")
]
StreamsOption = Annotated[
    int | None, typer.Option("--streams", min=1, max=1_000_000, help="Users who wait, a closed loop.")
]
RequestsOption = Annotated[int | None, typer.Option("--requests", min=1, max=MOST, help="How many in all.")]
ForOption = Annotated[
    str | None, typer.Option("--for", metavar="TIME", help="How long, as in 30s (default) or 2m.")
]
PromptOption = Annotated[
    str, typer.Option("--prompt-tokens", metavar="N|A-B", help="Without a trace: length of prompts.")
]
OutputOption = Annotated[
    str, typer.Option("--output-tokens", metavar="N|A-B", help="Without a trace: length of answers.")
]
ChatOption = Annotated[bool, typer.Option("--chat", help="Send words to `/v1/chat/completions`.")]
BearerOption = Annotated[
    str | None, typer.Option("--bearer-env", metavar="NAME", help="Variable that holds the bearer token.")
]
CaOption = Annotated[
    Path | None,
    typer.Option("--ca", exists=True, dir_okay=False, help="Authorities to trust for https, PEM."),
]
DialectOption = Annotated[
    Literal["vllm", "tensorrt-llm", "openai"] | None,
    typer.Option("--dialect", help="Request fields that the server knows; default: by what it says it is."),
]
ConnectionsOption = Annotated[
    int, typer.Option("--max-connections", min=1, max=60_000, help="Requests at once; more wait.")
]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for one request.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Of arrivals, lengths and prompts.")]
WorkersOption = Annotated[int, typer.Option("--workers", min=1, max=64, help="Processes that send.")]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS", help="Send from Dask workers: tcp://HOST:8786."),
]
WarmOption = Annotated[int, typer.Option("--warm", min=0, max=100_000, help="Requests before, not counted.")]
GoalOption = Annotated[
    list[str] | None, typer.Option("--goal", metavar="METRIC=MS", help="Limits for goodput.")
]
MarginOption = Annotated[
    float, typer.Option("--margin", min=1e-6, help="Relative difference to be told; finer is INVALID.")
]
PeersOption = Annotated[bool, typer.Option("--peers", help="Also in the words of other load generators.")]
LoadOutOption = Annotated[
    Path | None,
    typer.Option("--out", file_okay=False, help="Folder for `summary.json` and the raw data as Parquet."),
]
SelfcheckOption = Annotated[
    bool, typer.Option("--selfcheck", help="First, or without URL only, check this client on this host.")
]


def load(
    url: UrlArgument = None,
    model: ModelOption = "",
    trace: TraceOption = None,
    trace_format: FormatOption = None,
    scale: ScaleOption = 1.0,
    speed_up: SpeedOption = 1.0,
    rate: RateOption = None,
    arrivals: ArrivalsOption = "poisson",
    burstiness: BurstOption = 1.0,
    streams: StreamsOption = None,
    requests: RequestsOption = None,
    duration: ForOption = None,
    prompt_tokens: PromptOption = "128",
    output_tokens: OutputOption = "128",
    chat: ChatOption = False,
    bearer_env: BearerOption = None,
    ca: CaOption = None,
    dialect: DialectOption = None,
    max_connections: ConnectionsOption = 16_384,
    timeout: TimeoutOption = 300.0,
    seed: SeedOption = 1,
    workers: WorkersOption = 1,
    cluster: ClusterOption = None,
    warm: WarmOption = 0,
    goal: GoalOption = None,
    margin: MarginOption = 0.10,
    peers: PeersOption = False,
    out: LoadOutOption = None,
    selfcheck: SelfcheckOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Send a load to any OpenAI-shaped endpoint and measure it; invalid where the client was the limit."""
    from trtgate.commands import load_run, load_shape, load_show
    from trtgate.loads.base import Target
    from trtgate.loads.payload import read_bearer

    console = Console(as_json, quiet)
    if url is None:
        raise typer.Exit(_check_alone(console, wanted=selfcheck))
    lengths = [load_shape.parse_lengths(text) for text in (prompt_tokens, output_tokens)]
    traffic = load_shape.Traffic(trace, trace_format, scale, speed_up, *lengths)
    for_s = None if duration is None else load_shape.parse_duration(duration)
    pace = load_shape.Pace(rate, arrivals, burstiness, streams, requests, for_s)
    shape = load_shape.Shape(traffic, pace, seed)
    sending = load_run.Sending(timeout, max_connections, workers, cluster, warm, pace.timed_loop_s)
    sending.check(selfcheck=selfcheck)
    goals_ms = load_shape.parse_goals(goal or ())
    bearer = None if bearer_env is None else read_bearer(bearer_env)
    path = "/v1/chat/completions" if chat else "/v1/completions"
    endpoint = load_run.find_endpoint(Target(url, model, path, bearer, str(ca) if ca else True), dialect)
    plan = load_shape.plan_load(shape, endpoint.vocab, text=chat)
    question = load_show.Question(margin, goals_ms, peers, _checked(console) if selfcheck else None)
    result, report = load_run.run_and_report(endpoint, plan, question, sending, console)
    if out is not None:
        load_run.keep(result, report, out)
    console.record(report.model_dump(mode="json"))
    console.show(load_show.show_load(report))
    raise typer.Exit(report.exit_code)


def _checked(console: Console) -> "Selfcheck":
    from trtgate.commands.load_show import said_selfcheck
    from trtgate.loads.selfcheck import selfcheck

    check = selfcheck()
    console.step(said_selfcheck(check))
    return check


def _check_alone(console: Console, *, wanted: bool) -> ExitCode:
    """The self-check by itself; 12 where this client can be believed at no rate."""
    from trtgate.commands.load_show import show_selfcheck
    from trtgate.loads.selfcheck import selfcheck

    if not wanted:
        raise UsageError(
            "no address to send to", "as in `trtgate load http://127.0.0.1:8000 --rate 2`, or `--selfcheck`"
        )
    check = selfcheck()
    console.record(check.model_dump(mode="json"))
    console.show(show_selfcheck(check))
    return ExitCode.DONE if check.believed_tokens_per_s > 0 else ExitCode.INVALID
