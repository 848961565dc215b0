"""The run gives every request one named outcome, whatever the server does."""

import socket
import time

import pytest

from trtgate.errors import UsageError
from trtgate.loads import run as module
from trtgate.loads.base import Ask, Target
from trtgate.loads.prompts import Prompt
from trtgate.loads.run import run_load

ASK = Ask(0.0, (1, 2, 3), 2)


def outcome(server, *script, asks=(ASK,), **options):
    server.scripts = [script]
    return run_load(server.target, asks, **{"timeout_s": 5.0} | options)


def good(wire):
    return wire.stream(wire.token(token_ids=[7]), wire.token(token_ids=[8]), wire.usage(2), wire.done)


def test_a_whole_answer_has_its_tokens_and_times(server, wire):
    (answer,) = outcome(server, good(wire)).answers
    assert (answer.error, answer.tokens, answer.token_ids, answer.prompt_tokens) == (None, 2, (7, 8), 3)
    assert answer.scheduled_s <= answer.sent_s < answer.first_s <= answer.last_s <= answer.end_s
    assert answer.tokens_source == "usage"


def test_the_request_asks_for_fixed_greedy_output(server, wire):
    outcome(server, good(wire))
    body = server.bodies[0]
    assert body["prompt"] == [1, 2, 3]
    assert body["max_tokens"] == body["min_tokens"] == 2
    assert body["ignore_eos"] is body["stream"] is body["stream_options"]["include_usage"] is True
    assert body["temperature"] == 0


def test_a_connection_is_used_again(server, wire):
    asks = [Ask(0.0, (1,), 2), Ask(0.0, (1,), 2, after=0), Ask(0.0, (1,), 2, after=1)]
    result = outcome(server, good(wire), asks=asks)
    assert [answer.error for answer in result.answers] == [None] * 3
    assert server.connections == 1


def test_the_time_to_connect_is_given_once_a_connection(server, wire):
    asks = [Ask(0.0, (1,), 2), Ask(0.0, (1,), 2, after=0)]
    first, second = outcome(server, good(wire), asks=asks).answers
    assert first.connect_s > 0
    assert second.connect_s != second.connect_s


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_a_refusing_status_is_the_error_and_its_body_the_detail(server, status):
    reply = f"HTTP/1.1 {status} No\r\ncontent-length: 14\r\n\r\n".encode() + b'{"error":"no"}'
    (answer,) = outcome(server, reply).answers
    assert (answer.error, answer.status, answer.detail) == (f"http {status}", status, '{"error":"no"}')


def test_a_prompt_that_is_too_long_is_over_limit_not_a_server_fault(server):
    text = b"prompt length should not exceed max_num_tokens (8192)"
    (answer,) = outcome(
        server, b"HTTP/1.1 400 No\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text)
    ).answers
    assert answer.error == "over limit"


def test_a_stream_that_stops_moving_is_a_timeout_with_its_tokens(server, wire):
    (answer,) = outcome(server, wire.stream(wire.token(), end=b""), "hang", timeout_s=0.2).answers
    assert answer.error == "timeout"
    assert answer.tokens == 1


def test_a_server_that_never_answers_is_a_timeout(server):
    (answer,) = outcome(server, "hang", timeout_s=0.2).answers
    assert answer.error == "timeout"


def test_a_reset_is_named(server):
    (answer,) = outcome(server, "reset").answers
    assert answer.error == "reset"


def test_a_connection_closed_without_a_byte_is_named(server):
    (answer,) = outcome(server, "close").answers
    assert answer.error == "closed"


@pytest.mark.parametrize("end", [b"", b"0\r\n\r\n"])
def test_a_stream_without_its_end_mark_is_truncated(server, wire, end):
    (answer,) = outcome(server, wire.stream(wire.token(), wire.token(), end=end), "close").answers
    assert answer.error == "truncated"


def test_a_stream_cut_inside_an_event_is_truncated(server, wire):
    (answer,) = outcome(server, good(wire)[:200], "close").answers
    assert answer.error == "truncated"


def test_a_200_without_a_token_is_an_error(server, wire):
    (answer,) = outcome(server, wire.stream(wire.token(""), wire.done)).answers
    assert answer.error == "no tokens"


def test_an_error_event_inside_the_stream_is_an_error(server, wire):
    (answer,) = outcome(server, wire.stream(wire.token(), b'{"error":{"message":"dead"}}', wire.done)).answers
    assert answer.error == "stream error"
    assert "dead" in answer.detail


@pytest.mark.parametrize(
    "junk", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"]
)
def test_what_is_not_http_is_malformed(server, junk):
    (answer,) = outcome(server, junk).answers
    assert answer.error == "malformed"


@pytest.mark.parametrize("event", [b"{", b"[1]", b'{"choices":[1]}', b'{"choices":7}', b'{"usage":3}'])
def test_an_event_of_another_shape_is_malformed(server, wire, event):
    (answer,) = outcome(server, wire.stream(event, wire.done)).answers
    assert answer.error == "malformed"


def test_a_dead_server_refuses_every_request_and_the_run_returns():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    result = run_load(Target(f"http://127.0.0.1:{port}", "m"), [ASK] * 20, timeout_s=5.0)
    assert [answer.error for answer in result.answers] == ["refused"] * 20


def test_one_failure_leaves_the_others_whole(server, wire):
    server.scripts = [[good(wire)], ["reset"], [good(wire)]]
    asks = [Ask(0.0, (1,), 2), Ask(0.0, (1,), 2, after=0), Ask(0.0, (1,), 2, after=1)]
    assert [a.error for a in run_load(server.target, asks).answers] == [None, "reset", None]


def test_a_full_run_queues_and_counts_from_the_schedule(server, wire):
    result = outcome(server, good(wire), asks=[ASK] * 6, max_connections=1)
    assert [answer.queued for answer in result.answers] == [False] + [True] * 5
    assert {answer.scheduled_s for answer in result.answers} == {0.0}
    assert result.instrument.queued == 5


def test_stop_ends_what_runs_and_says_what_was_not_sent(server):
    asks = [ASK, Ask(500.0, (1,), 2), Ask(0.0, (1,), 2, after=0)]
    result = outcome(server, "hang", asks=asks, stop=lambda: bool(server.bodies))
    assert [answer.error for answer in result.answers] == ["unfinished", "not sent", "not sent"]


def test_drain_bounds_the_wait_for_the_last_answers(server):
    (answer,) = outcome(server, "hang", drain_s=0.0).answers
    assert answer.error == "unfinished"


def test_an_answer_after_its_end_mark_is_complete_even_if_the_connection_dies(server, wire):
    whole = wire.stream(wire.token(), wire.usage(1), wire.done, end=b"")
    assert outcome(server, whole, "reset").answers[0].error is None


@pytest.mark.parametrize("url", ["ftp://x", "localhost:80", "http://", "http://h:99999"])
def test_what_is_not_an_address_is_refused(url):
    with pytest.raises(UsageError, match="not the address"):
        run_load(Target(url, "m"), [ASK])


@pytest.mark.parametrize(
    "ask",
    [
        Ask(-1.0, (1,), 1),
        Ask(float("nan"), (1,), 1),
        Ask(0.0, (), 1),
        Ask(0.0, (1,), 0),
        Ask(0, (1,), 1, after=0),
    ],
)
def test_an_impossible_request_is_refused_before_anything_is_sent(ask):
    with pytest.raises(UsageError):
        run_load(Target("http://127.0.0.1:1", "m"), [ask])


def test_a_long_prompt_is_sent_whole(server, wire):
    outcome(server, good(wire), asks=[Ask(0.0, Prompt(1, 200_000, 50_000), 2)])
    assert len(server.bodies[0]["prompt"]) == 200_000


def test_asks_are_sent_in_the_order_of_their_times(server, wire):
    answers = outcome(
        server, good(wire), asks=[Ask(0.06, (1,), 2), Ask(0.0, (2,), 2), Ask(0.03, (3,), 2)]
    ).answers
    assert answers[1].sent_s < answers[2].sent_s < answers[0].sent_s
    assert all(answer.sent_s >= answer.scheduled_s for answer in answers)


def test_a_slow_answer_does_not_hold_back_the_next_ask(server, wire):
    server.by_prompt = {1: ["hang"], 2: [good(wire)]}
    slow, quick = run_load(server.target, [ASK, Ask(0.05, (2,), 2)], timeout_s=0.8).answers
    assert (slow.error, quick.error) == ("timeout", None)
    assert quick.end_s < slow.end_s


def test_a_connection_that_the_server_gave_up_is_not_used(server, wire):
    server.scripts = [[good(wire), "close"], [good(wire)]]
    result = run_load(server.target, [ASK, Ask(0.2, (1,), 2, after=0)], timeout_s=5.0)
    assert [answer.error for answer in result.answers] == [None, None]
    assert server.connections == 2


def test_a_pause_counts_from_the_end_of_the_ask_before(server, wire):
    first, second = outcome(server, good(wire), asks=[ASK, Ask(0.1, (1,), 2, after=0)]).answers
    assert second.scheduled_s >= first.end_s + 0.1


def test_progress_tells_how_many_run(server):
    told = []
    outcome(server, "hang", timeout_s=1.2, progress=told.append)
    assert (told[0].asked, told[0].sent, told[0].running) == (1, 1, 1)


def test_a_start_in_the_future_is_waited_for(server, wire):
    start_ns = time.monotonic_ns() + 100_000_000
    (answer,) = outcome(server, good(wire), start_ns=start_ns).answers
    assert answer.sent_s >= 0
    assert time.monotonic_ns() > start_ns


def test_of_several_addresses_one_that_accepts_is_taken(server, wire, monkeypatch):
    server.scripts = [[good(wire)]]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = listener.getsockname()
    live = server.listener.getsockname()
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in (dead, live)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert run_load(server.target, [ASK], timeout_s=5.0).answers[0].error is None


def test_requests_are_prepared_within_a_budget_that_comes_back(server, wire, monkeypatch):
    monkeypatch.setattr(module, "_AHEAD_BYTES", 1)
    result = outcome(server, good(wire), asks=[Ask(0.005 * place, (1,), 2) for place in range(20)])
    assert [answer.error for answer in result.answers] == [None] * 20


def test_an_unknown_host_is_refused_before_anything_is_sent():
    with pytest.raises(UsageError, match="unknown"):
        run_load(Target("http://no-such-host.invalid", "m"), [ASK])


def test_nothing_to_send_is_refused():
    with pytest.raises(UsageError, match="nothing to send"):
        run_load(Target("http://127.0.0.1:1", "m"), [])
