"""`trtgate load` against a small server that lists a model and streams as many tokens as are asked for."""

import json
import os
import signal
import subprocess
import sys
import threading
from array import array
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.candidates import TRACE
from tests.commands.conftest import Trtgate
from trtgate.commands.load_run import without_cut
from trtgate.commands.load_shape import Pace, Shape, Traffic, parse_duration, parse_lengths, plan_load
from trtgate.errors import UsageError
from trtgate.loads.base import Ask, LoadResult
from trtgate.loads.flight import Flight, unsent
from trtgate.loads.instrument import Effort, read_instrument

EASY = ("--margin", "1e9")  # so that no result depends on time
ONE_TOKEN = ("--output-tokens", 1)  # no gaps, which a busy machine could blur
FOUR = ("--streams", 4, "--requests", 4, "--prompt-tokens", 5, "--output-tokens", 3)


class Endpoint(ThreadingHTTPServer):
    """Counts requests; `status` other than 200 refuses them, `short` leaves that many tokens out."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[dict[str, Any]] = []
        self.bearers: list[str | None] = []
        self.status, self.short, self.owner = 200, 0, "vllm"
        self.interrupt_at = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Endpoint

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.bearers.append(self.headers["Authorization"])
        cards = [{"id": "first", "owned_by": self.server.owner}, {"id": "second"}]
        self.answer(json.dumps({"data": cards, "vocab": 50}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        if len(self.server.bodies) == self.server.interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)
        tokens = body["max_tokens"] - self.server.short
        said = {"delta": {"content": "x"}} if "messages" in body else {"text": "x"}
        events = [{"choices": [{"index": 0, **said}]}] * tokens
        events += [{"choices": [], "usage": {"completion_tokens": tokens, "prompt_tokens": 5}}]
        self.answer(
            "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode() + b"data: [DONE]\n\n"
        )

    def answer(self, data: bytes) -> None:
        self.send_response(self.server.status)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_result_says_what_was_sent_and_that_it_may_be_believed(
    trtgate: Trtgate, endpoint: Endpoint
) -> None:
    outcome = trtgate("load", endpoint.url, *FOUR, *EASY, *ONE_TOKEN)
    assert outcome.code == 0
    assert outcome.out.startswith("VALID")
    assert "4 of 4 complete" in outcome.out
    assert [len(body["prompt"]) for body in endpoint.bodies] == [5] * 4
    assert max(map(len, outcome.out.splitlines())) <= 80


def test_the_first_model_listed_is_asked_unless_one_is_named(trtgate: Trtgate, endpoint: Endpoint) -> None:
    trtgate("load", endpoint.url, *FOUR, *EASY)
    trtgate("load", f"{endpoint.url}/v1/", *FOUR, *EASY, "--model", "second")
    assert [body["model"] for body in endpoint.bodies] == ["first"] * 4 + ["second"] * 4


def test_answers_of_another_length_make_the_run_invalid(trtgate: Trtgate, endpoint: Endpoint) -> None:
    endpoint.short = 1
    outcome = trtgate("load", endpoint.url, *FOUR, *EASY)
    assert (outcome.code, outcome.out.startswith("INVALID (exit 12)")) == (12, True)
    assert "4 of 4 answers have another length than asked for" in outcome.out


def test_nothing_completed_is_invalid_and_still_written(
    trtgate: Trtgate, tmp_path: Path, closed_port: int
) -> None:
    url = f"http://127.0.0.1:{closed_port}"
    outcome = trtgate("load", url, "--model", "m", *FOUR, "--out", tmp_path / "out")
    assert outcome.code == 12
    assert "0 of 4 requests completed" in outcome.out
    assert "4 refused" in outcome.out
    written = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (written["summary"]["complete"], written["summary"]["errors"]) == (0, {"refused": 4})


def test_errors_are_shown_by_kind_with_what_the_server_said(trtgate: Trtgate, endpoint: Endpoint) -> None:
    endpoint.status = 503
    outcome = trtgate("load", endpoint.url, "--model", "m", *FOUR, *EASY)
    assert outcome.code == 12
    assert "4 http 503: data:" in outcome.out


def test_raw_data_is_read_by_pandas_in_one_line(trtgate: Trtgate, endpoint: Endpoint, tmp_path: Path) -> None:
    trtgate("load", endpoint.url, *FOUR, *EASY, "--out", tmp_path)
    assert pd.read_parquet(tmp_path / "requests.parquet").tokens.tolist() == [3] * 4
    assert pd.read_parquet(tmp_path / "chunks.parquet").request.value_counts().tolist() == [3] * 4


def test_json_is_the_record_that_is_written(trtgate: Trtgate, endpoint: Endpoint, tmp_path: Path) -> None:
    outcome = trtgate("load", endpoint.url, *FOUR, *EASY, "--json", "--quiet", "--out", tmp_path)
    assert json.loads(outcome.out) == json.loads((tmp_path / "summary.json").read_text())
    assert outcome.err == ""


def test_the_peers_words_stand_beside_ours_where_asked_for(trtgate: Trtgate, endpoint: Endpoint) -> None:
    assert "vllm-bench tpot" in trtgate("load", endpoint.url, *FOUR, *EASY, "--peers").out
    assert "vllm-bench" not in trtgate("load", endpoint.url, *FOUR, *EASY).out


def test_goodput_counts_requests_within_all_goals(trtgate: Trtgate, endpoint: Endpoint) -> None:
    goals = ("--goal", "ttft_ms=1000000,e2e_ms=1000000", "--goal", "worst_gap_ms=1000000")
    assert (
        "100.0 % of requests within ttft_ms <= 1e+06"
        in trtgate("load", endpoint.url, *FOUR, *EASY, *goals).out
    )


def test_warm_requests_are_sent_and_not_counted(trtgate: Trtgate, endpoint: Endpoint) -> None:
    outcome = trtgate("load", endpoint.url, *FOUR, *EASY, "--warm", 3)
    assert (len(endpoint.bodies), "4 of 4 complete" in outcome.out) == (7, True)


def test_chat_sends_words(trtgate: Trtgate, endpoint: Endpoint) -> None:
    outcome = trtgate("load", endpoint.url, *FOUR, *EASY, *ONE_TOKEN, "--chat")
    assert outcome.code == 0
    assert len(endpoint.bodies[0]["messages"][0]["content"].split()) == 5


def test_the_token_of_the_environment_goes_with_every_request(
    trtgate: Trtgate, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "secret")
    outcome = trtgate("load", endpoint.url, *FOUR, *EASY, "--bearer-env", "KEY", "--json")
    assert endpoint.bearers == ["Bearer secret"]
    assert "secret" not in outcome.out + outcome.err


@pytest.mark.parametrize(("owner", "field"), [("vllm", True), ("tensorrt_llm", False)])
def test_only_fields_that_the_server_knows_are_sent(
    trtgate: Trtgate, endpoint: Endpoint, owner: str, field: bool
) -> None:
    endpoint.owner = owner
    trtgate("load", endpoint.url, *FOUR, *EASY)
    assert ("return_token_ids" in endpoint.bodies[0]) is field


def test_token_ids_stay_within_the_vocabulary_of_the_reference_runtime(
    trtgate: Trtgate, endpoint: Endpoint
) -> None:
    endpoint.owner = "trtgate-reference"
    trtgate("load", endpoint.url, "--streams", 1, "--requests", 1, "--prompt-tokens", 200, *EASY)
    assert max(endpoint.bodies[0]["prompt"]) < 50


def test_a_timed_closed_loop_leaves_out_what_its_end_cut_off() -> None:
    flight = Flight(0, Ask(0.0, (1,), 1), 0.0)
    flight.sent_s = 0.0
    cut, never = flight.answer("unfinished", 1.0), unsent(1, Ask(0.0, (1,), 1, after=0), 0.0)
    failed = replace(cut, error="http 500", index=2)
    bar = read_instrument((cut, never, failed), array("f"), [Effort(1.0, 0.1, 0.0, 0.0, 0)])
    left = without_cut(LoadResult((cut, never, failed), bar, 0.0, 1.0))
    assert [answer.index for answer in left.answers] == [2]
    assert (bar.delivered < 1.0, left.instrument.delivered) == (True, 1.0)


def test_a_closed_loop_ends_by_the_clock_unless_it_has_a_number() -> None:
    assert shape(streams=2, for_s=5.0).pace.timed_loop_s == 5.0
    assert shape(streams=2).pace.timed_loop_s == 30.0
    assert shape(streams=2, requests=9).pace.timed_loop_s is None
    assert len(plan_load(shape(streams=2, for_s=5.0), 100).asks) == 500


@pytest.mark.usefixtures("default_signals")
def test_an_interrupt_ends_the_run_and_keeps_what_was_measured(
    trtgate: Trtgate, endpoint: Endpoint, tmp_path: Path
) -> None:
    endpoint.interrupt_at = 5
    before = signal.getsignal(signal.SIGINT)
    outcome = trtgate("load", endpoint.url, "--streams", 1, "--requests", 5_000, *EASY, "--out", tmp_path)
    assert (outcome.code, signal.getsignal(signal.SIGINT)) == (130, before)
    assert "of 5000 requests" in outcome.out.splitlines()[1]
    assert json.loads((tmp_path / "summary.json").read_text())["interrupted"]


def test_several_processes_give_one_result(trtgate: Trtgate, endpoint: Endpoint) -> None:
    outcome = trtgate("load", endpoint.url, *FOUR, *EASY, "--workers", 2)
    assert "4 of 4 complete" in outcome.out


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_sends_and_its_clocks_are_in_the_result(
    trtgate: Trtgate, endpoint: Endpoint, tmp_path: Path
) -> None:
    distributed = pytest.importorskip("distributed")
    workers = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "protocol": "tcp://"}
    with distributed.LocalCluster(**workers) as cluster:
        address = cluster.scheduler_address
        outcome = trtgate(
            "load", endpoint.url, *FOUR, *EASY, *ONE_TOKEN, "--cluster", address, "--out", tmp_path
        )
    assert ("4 of 4 complete" in outcome.out, len(endpoint.bodies)) == (True, 4)
    assert "clocks      of 2 workers" in outcome.out
    clocks = json.loads((tmp_path / "summary.json").read_text())["clocks"]
    assert [(clock["asked"], clock["round_trips"]) for clock in clocks] == [(2, 16)] * 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((*FOUR, "--workers", 2), "`--cluster` and `--workers` both say who sends"),
        ((*FOUR, "--selfcheck"), "`--selfcheck` is about this host, not about those of `--cluster`"),
        (("--streams", 1, "--for", "1s"), "a timed closed loop runs in one process"),
    ],
)
def test_what_does_not_go_with_a_cluster_is_refused_before_anything_is_sent(
    trtgate: Trtgate, endpoint: Endpoint, options: tuple[object, ...], said: str
) -> None:
    outcome = trtgate("load", endpoint.url, *options, "--cluster", "tcp://127.0.0.1:9")
    assert (outcome.code, outcome.error, endpoint.bodies) == (2, said, [])


def test_a_trace_gives_arrivals_and_lengths_and_is_named(trtgate: Trtgate, endpoint: Endpoint) -> None:
    options = ("--trace", TRACE, "--scale", "0.01", "--speed-up", "100", "--requests", 5)
    outcome = trtgate("load", endpoint.url, *options, *EASY, "--json")
    record = json.loads(outcome.out)
    assert (record["summary"]["complete"], record["trace"][0]["format"]) == (5, "azure")


def test_the_self_check_alone_says_up_to_which_rate_the_client_is_believed(trtgate: Trtgate) -> None:
    outcome = trtgate("load", "--selfcheck", "--json")
    found = json.loads(outcome.out)
    assert found["levels"][0]["tokens_per_s"] == 3200
    assert outcome.code == (0 if found["believed_tokens_per_s"] > 0 else 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "nothing says how much to send"),
        (("--rate", 1, "--streams", 1), "exclude each other"),
        (("--streams", 1, "--requests", 1, "--for", "1s"), "by `--requests` or by `--for`"),
        (("--rate", 1, "--for", "soon"), "`--for soon` is not a duration"),
        (("--rate", 1, "--prompt-tokens", "9-3"), "`9-3` is not a number of tokens"),
        (("--rate", 1, "--goal", "itl_ms=3"), "no goal can be set on `itl_ms`"),
        (("--rate", 1, "--goal", "ttft_ms=fast"), "is not a limit in ms"),
        (("--rate", 1, "--bearer-env", "NOT_SET_HERE"), "is not set in the environment"),
        (("--rate", 1e9), "too many for one run"),
        (("--trace", "none.csv"), "does not exist"),
        (("--rate", 1, "--ca", "none.pem"), "does not exist"),
        (("--rate", 1, "--out", __file__), "is a file"),
    ],
)
def test_a_load_that_cannot_be_meant_is_refused_before_anything_is_sent(
    trtgate: Trtgate, endpoint: Endpoint, options: tuple[object, ...], message: str
) -> None:
    outcome = trtgate("load", endpoint.url, *options)
    assert (outcome.code, endpoint.bodies) == (2, [])
    assert message in outcome.error
    assert outcome.hint


def test_an_address_is_needed(trtgate: Trtgate) -> None:
    assert (trtgate("load").code, trtgate("load", "ftp://x", "--rate", 1).code) == (2, 2)


def test_a_server_that_is_not_there_is_told_at_once(trtgate: Trtgate, closed_port: int) -> None:
    outcome = trtgate("load", f"http://127.0.0.1:{closed_port}", "--rate", 1)
    assert (outcome.code, "does not answer" in outcome.error) == (12, True)


def test_a_load_without_a_trace_does_not_wait_for_the_readers(closed_port: int) -> None:
    url = f"http://127.0.0.1:{closed_port}"
    code = (
        f"import sys; from trtgate.cli import run; run(['load', '{url}', '--rate', '1', '--model', 'm',"
        " '--requests', '1', '--quiet']); print(sorted({'numba', 'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def shape(**changes: object) -> Shape:
    pace: dict[str, Any] = {
        "rate": None,
        "arrivals": "poisson",
        "burstiness": 1.0,
        "streams": None,
        "requests": None,
        "for_s": None,
    }
    traffic = Traffic(None, None, 1.0, 1.0, parse_lengths("2-4"), parse_lengths("7"))
    return Shape(traffic, Pace(**(pace | changes)), 1)


@pytest.mark.parametrize("arrivals", ["poisson", "constant", "gamma"])
def test_a_rate_fills_its_time_and_ends_there(arrivals: str) -> None:
    asks = plan_load(shape(rate=50.0, arrivals=arrivals, for_s=20.0), 100).asks
    assert 850 < len(asks) < 1150
    assert 19.0 < max(ask.at_s for ask in asks) < 20.0
    assert {len(ask.prompt) for ask in asks} == {2, 3, 4}
    assert {ask.max_tokens for ask in asks} == {7}


def test_whichever_end_comes_first_ends_an_open_loop() -> None:
    assert len(plan_load(shape(rate=10.0, arrivals="constant", for_s=2.0, requests=100), 100).asks) == 20
    assert len(plan_load(shape(rate=10.0, arrivals="constant", for_s=2.0, requests=5), 100).asks) == 5


def test_the_same_seed_gives_the_same_load() -> None:
    one, other = (plan_load(shape(rate=5.0, requests=9), 100).asks for _ in range(2))
    assert [(ask.at_s, list(ask.prompt)) for ask in one] == [(ask.at_s, list(ask.prompt)) for ask in other]


@pytest.mark.parametrize(("text", "seconds"), [("30", 30), ("30s", 30), ("1.5m", 90), ("2h", 7200)])
def test_durations_have_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["0", "-5s", "5 s", "1d", ""])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration(text)
