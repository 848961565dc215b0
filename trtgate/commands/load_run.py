"""Where a load goes and how it is sent: the endpoint's own answers, warm requests, the clock, the interrupt."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

import requests

from trtgate.commands.load_shape import VOCAB, Plan
from trtgate.commands.load_show import LoadReport, Question, report_load, said_progress
from trtgate.console import Console
from trtgate.errors import InvalidMeasurementError, UsageError
from trtgate.loads.base import Dialect, LoadResult, Progress, Target
from trtgate.loads.cluster import run_cluster
from trtgate.loads.offsets import WorkerClock, clock_faults
from trtgate.loads.payload import split_url
from trtgate.loads.run import run_load
from trtgate.loads.workers import merge, run_workers

_LOOK_S = 10.0
_PLAIN_LINE_S = 10.0
_CUT = ("unfinished", "not sent")
# Who a server says it is owned by, and the request fields that it knows; others mostly ignore what they do not know.
_DIALECTS: dict[str, Dialect] = {"tensorrt_llm": "tensorrt-llm", "openai": "openai", "system": "openai"}
_OURS = "trtgate-reference"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to send, and below which number token ids are known there."""

    target: Target
    vocab: int


@dataclass(frozen=True, slots=True)
class Sending:
    """How a load is sent."""

    timeout_s: float
    max_connections: int
    workers: int
    cluster: str | None = None  # address of the Dask scheduler whose workers send
    warm: int = 0  # requests before, which do not count
    cut_s: float | None = None  # a closed loop without a number of requests ends here

    def check(self, *, selfcheck: bool) -> None:
        """Refuse what does not go together."""
        if self.cluster is not None and self.workers > 1:
            raise UsageError(
                "`--cluster` and `--workers` both say who sends", "one process on each Dask worker sends"
            )
        if self.cluster is not None and selfcheck:
            raise UsageError(
                "`--selfcheck` is about this host, not about those of `--cluster`",
                "run `trtgate load --selfcheck` where the workers run",
            )
        if self.cut_s is not None and (self.workers > 1 or self.cluster is not None):
            raise UsageError("a timed closed loop runs in one process", "give `--requests` with it")


@dataclass(frozen=True, slots=True)
class _Sent:
    """What came of it; `faults` are reasons for INVALID that the result itself does not show."""

    result: LoadResult
    interrupted: bool
    faults: tuple[str, ...] = ()
    clocks: tuple[WorkerClock, ...] = ()


@dataclass(slots=True)
class _Stop:
    """Asked ten times a second whether to go on: until an interrupt, or `cut_s` after the first time."""

    cut_s: float | None
    interrupted: bool = False
    cut: bool = False
    _until_s: float | None = field(default=None)

    def __call__(self) -> bool:
        now_s = time.monotonic()
        if self._until_s is None and self.cut_s is not None:
            self._until_s = now_s + self.cut_s
        self.cut = self._until_s is not None and now_s >= self._until_s
        return self.interrupted or self.cut


def find_endpoint(target: Target, dialect: Dialect | None) -> Endpoint:
    """Ask the server for its model, whose kind it is and, of our own runtime, for its vocabulary.

    With a model given, a server that does not say is taken as it is; without one it is refused.
    """
    url = target.url.rstrip("/").removesuffix("/v1")
    target = replace(target, url=url)
    split_url(target)
    with requests.Session() as session:
        session.trust_env = False
        session.verify = target.verify
        if target.bearer:
            session.headers["Authorization"] = f"Bearer {target.bearer}"
        cards = _cards(session, url, required=not target.model)
        card = next((card for card in cards if card.get("id") == target.model), cards[0] if cards else {})
        owner = str(card.get("owned_by", ""))
        known: Dialect = dialect or _DIALECTS.get(owner, "vllm")
        vocab = _vocab(session, url) if owner == _OURS else VOCAB
    return Endpoint(replace(target, model=target.model or str(card["id"]), dialect=known), vocab)


def _cards(session: requests.Session, url: str, *, required: bool) -> list[dict[str, object]]:
    place = f"{url}/v1/models"
    try:
        answer = session.get(place, timeout=_LOOK_S)
        data = answer.json() if answer.ok else {}
    except requests.exceptions.JSONDecodeError:
        data = {}
    except requests.RequestException as error:
        if not required:
            return []
        untrusted = isinstance(error, requests.exceptions.SSLError)
        raise InvalidMeasurementError(
            f"`{place}` does not answer: {type(error).__name__}",
            "name the authority to trust in `--ca`, a PEM file"
            if untrusted
            else "is the server running there?",
        ) from error
    listed = data.get("data") if isinstance(data, dict) else None
    cards = [card for card in listed or [] if isinstance(card, dict) and card.get("id")]
    if required and answer.status_code in (401, 403):
        raise UsageError(
            f"`{place}` answers {answer.status_code}", "name the variable with the token in `--bearer-env`"
        )
    if required and not cards:
        raise UsageError(f"`{place}` names no model (status {answer.status_code})", "give `--model NAME`")
    return cards


def _vocab(session: requests.Session, url: str) -> int:
    try:
        data = session.get(f"{url}/server_info", timeout=_LOOK_S).json()
    except requests.RequestException:
        return VOCAB
    size = data.get("vocab") if isinstance(data, dict) else None
    return size if isinstance(size, int) else VOCAB


def run_and_report(
    endpoint: Endpoint, plan: Plan, question: Question, sending: Sending, console: Console
) -> tuple[LoadResult, LoadReport]:
    """Send the warm requests, then those that count, and say what came of them."""
    if sending.warm:
        console.step(f"{sending.warm} requests to warm up")
        _send_warm(endpoint.target, plan, sending)
    console.step(plan.said)
    sent = _send(endpoint.target, plan, sending, console)
    report = report_load(
        endpoint.target,
        plan,
        sent.result,
        question,
        workers=sending.workers,
        faults=(*sent.faults, *clock_faults(sent.clocks, sent.result, question.margin)),
        interrupted=sent.interrupted,
        clocks=sent.clocks,
    )
    return sent.result, report


def keep(result: LoadResult, report: LoadReport, folder: Path) -> None:
    """Write `summary.json`, `requests.parquet` and `chunks.parquet`."""
    from trtgate.loads.tables import write_tables  # brings pyarrow

    write_tables(result, folder)
    report.write(folder / "summary.json")


def _send_warm(target: Target, plan: Plan, sending: Sending) -> None:
    """As many of the requests as asked for, from the start again where they are fewer, all at once."""
    asks = [
        replace(plan.asks[number % len(plan.asks)], at_s=0.0, after=None) for number in range(sending.warm)
    ]
    run_load(
        target,
        asks,
        timeout_s=sending.timeout_s,
        max_connections=sending.max_connections,
        drain_s=sending.timeout_s,
    )


def _send(target: Target, plan: Plan, sending: Sending, console: Console) -> _Sent:
    """The first Ctrl-C ends the run and keeps what was measured, the second gives up."""
    stop = _Stop(sending.cut_s)
    if sending.cluster is not None:
        run = run_cluster(
            target,
            plan.asks,
            sending.cluster,
            timeout_s=sending.timeout_s,
            max_connections=sending.max_connections,
            drain_s=sending.timeout_s,
        )
        return _Sent(run.result, False, run.faults, run.clocks)
    if sending.workers > 1:
        result = run_workers(
            target,
            plan.asks,
            sending.workers,
            timeout_s=sending.timeout_s,
            max_connections=sending.max_connections,
            drain_s=sending.timeout_s,
        )
        return _Sent(result, interrupted=False)
    with _interruptible(stop):
        result = run_load(
            target,
            plan.asks,
            timeout_s=sending.timeout_s,
            max_connections=sending.max_connections,
            drain_s=sending.timeout_s,
            progress=_Live(console),
            stop=stop,
        )
    console.progress_done()
    if stop.interrupted:
        sent = sum(answer.sent_s == answer.sent_s for answer in result.answers)
        return _Sent(result, True, (f"interrupted after {sent} of {len(plan.asks)} requests",))
    if sending.cut_s is None:
        return _Sent(result, interrupted=False)
    if not stop.cut:
        return _Sent(result, False, (f"all {len(plan.asks)} requests that were made ready are used up",))
    return _Sent(without_cut(result), interrupted=False)


def without_cut(result: LoadResult) -> LoadResult:
    """The run without what the end of the time cut off, as if it had not been asked for."""
    kept = tuple(answer for answer in result.answers if answer.error not in _CUT)
    if not kept:
        return result
    return merge([replace(result, answers=kept)], [range(len(result.answers))])


class _Live:
    """Shows how far a run is: a live line on a terminal, else a line now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_s = _PLAIN_LINE_S

    def __call__(self, now: Progress) -> None:
        if sys.stderr.isatty():
            self._console.progress(said_progress(now))
        elif now.elapsed_s >= self._next_s:
            self._next_s = now.elapsed_s + _PLAIN_LINE_S
            self._console.step(said_progress(now))


@contextmanager
def _interruptible(stop: _Stop) -> Iterator[None]:
    """The first Ctrl-C asks the run to end; from then on it interrupts as always."""

    def note(_number: int, _frame: FrameType | None) -> None:
        stop.interrupted = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
