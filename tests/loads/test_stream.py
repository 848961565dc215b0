"""The parser reads the same answer wherever the network cuts it."""

import contextlib
import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtgate.loads.reply import Reply
from trtgate.loads.stream import MalformedError, Stream

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def completion(text="x", **fields):
    return {"choices": [{"index": 0, "text": text, "finish_reason": None, **fields}]}


def chat(**delta):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def usage(tokens, **fields):
    return {"choices": [], "usage": {"completion_tokens": tokens, "prompt_tokens": 4}, **fields}


def events(*items, newline="\n"):
    lines = (item if isinstance(item, str) else "data: " + json.dumps(item) for item in items)
    return "".join(line + newline * 2 for line in lines).encode()


def read(body, *, at=(1.0,)):
    stream = Stream()
    for place, at_s in enumerate(at):
        stream.feed(body[len(body) * place // len(at) : len(body) * (place + 1) // len(at)], at_s)
    stream.finish()
    return stream


def seen(stream):
    return (
        list(stream.chunk_tokens),
        stream.ids and list(stream.ids),
        stream.usage_tokens,
        stream.finish_reason,
        stream.done,
    )


BODIES = {
    "completions": events(
        completion("a", token_ids=[5]), completion("b", token_ids=[6, 7]), usage(3), "data: [DONE]"
    ),
    "chat": events(
        chat(role="assistant", content=""), chat(reasoning_content="hm"), chat(content="é"), "data: [DONE]"
    ),
    "crlf": events(completion("a"), ": ping", completion("b"), "data: [DONE]", newline="\r\n"),
    "cr": events(completion("a"), completion("b"), "data: [DONE]", newline="\r"),
    "other fields": events(
        "event: message\nid: 3\nretry: 9\ndata:" + json.dumps(completion("a")), "data: [DONE]"
    ),
    "two data lines": b'data: {"choices":\ndata: [{"text":"a"}]}\n\ndata: [DONE]\n\n',
    "no last blank line": events(completion("a")) + b"data: [DONE]",
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_cut_anywhere_reads_the_same(name):
    body = BODIES[name]
    whole = seen(read(body))
    assert whole[-1]
    for cut in range(len(body) + 1):
        stream = Stream()
        stream.feed(body[:cut], 1.0)
        stream.feed(body[cut:], 2.0)
        stream.finish()
        assert seen(stream) == whole


@given(
    cuts=st.lists(st.integers(0, 2000), max_size=20),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=30),
    body=st.sampled_from(list(BODIES.values())),
)
@settings(max_examples=150, deadline=None)
def test_chunking_and_reads_may_fall_anywhere(cuts, sizes, body):
    wire, start = HEAD, 0
    for size in [*sizes, len(body)]:
        piece = body[start : start + size]
        start += size
        if piece:
            wire += b"%x;ext=1\r\n%b\r\n" % (len(piece), piece)
    wire += b"0\r\nX-Trailer: 1\r\n\r\n"
    reply = Reply()
    edges = [0, *sorted(cut for cut in cuts if cut < len(wire)), len(wire)]
    for first, last in pairwise(edges):
        if first < last:
            reply.feed(wire[first:last], float(last))
    assert reply.complete
    assert reply.keep_alive
    assert seen(reply.stream) == seen(read(body))


def test_a_chunk_has_the_time_of_the_read_that_completed_it():
    body = events(completion("a"), completion("b"))
    stream = Stream()
    stream.feed(body[:-1], 1.0)
    stream.feed(body[-1:], 2.0)
    assert list(stream.chunk_s) == [1.0, 2.0]


def test_a_role_is_not_a_token_and_reasoning_is():
    stream = read(events(chat(role="assistant"), chat(role="assistant", content=""), chat(reasoning="hm")))
    assert len(stream.chunk_s) == 1


def test_a_tool_call_is_content():
    assert len(read(events(chat(tool_calls=[{"index": 0}]))).chunk_s) == 1


def test_twelve_tokens_in_three_chunks_are_twelve():
    stream = read(events(*(completion("abcd", token_ids=[1, 2, 3, 4]) for _ in range(3)), usage(12)))
    assert (list(stream.chunk_tokens), stream.usage_tokens, stream.known) == ([4, 4, 4], 12, True)


def test_running_usage_counts_tokens_without_text():
    steps = [
        completion("", usage=None),
        *({**completion(""), "usage": {"completion_tokens": n}} for n in (1, 3, 3)),
    ]
    assert list(read(events(*steps)).chunk_tokens) == [1, 2]


def test_without_ids_or_usage_each_chunk_counts_one_and_says_so():
    stream = read(events(completion("several words here"), completion("more")))
    assert (stream.counted, stream.known, stream.usage_tokens) == (2, False, None)


@pytest.mark.parametrize(
    "steps",
    [
        [completion("a"), completion("b", finish_reason="length")],
        [completion("a"), completion("b"), completion("", finish_reason="length")],
    ],
)
def test_the_last_token_counts_once_with_or_before_its_finish_reason(steps):
    stream = read(events(*steps))
    assert (stream.counted, stream.finish_reason) == (2, "length")


def test_an_end_without_finish_reason_is_an_end():
    stream = read(events(completion("a"), "data: [DONE]"))
    assert (stream.finish_reason, stream.done) == (None, True)


def test_log_probabilities_of_both_shapes_are_kept():
    text = completion("a", logprobs={"token_logprobs": [None, -0.5]})
    said = {"choices": [{"delta": {"content": "a"}, "logprobs": {"content": [{"logprob": -1.5}]}}]}
    stream = read(events(text, said))
    assert stream.logprobs[1:] == [-0.5, -1.5]


def reply_of(*parts):
    reply = Reply()
    for part in parts:
        reply.feed(part, 1.0)
    return reply


def test_a_body_of_known_length_is_complete_at_its_length():
    reply = reply_of(b"HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\nab", b"cd")
    assert (reply.complete, reply.body, reply.keep_alive) == (True, b"abcd", True)


def test_an_empty_body_is_complete_at_once():
    assert reply_of(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n").complete


def test_a_body_without_length_ends_with_the_connection():
    reply = reply_of(b"HTTP/1.1 500 No\r\n\r\nab")
    assert not reply.complete
    reply.close()
    assert (reply.complete, reply.keep_alive) == (True, False)


def test_an_interim_response_is_passed_over():
    assert reply_of(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 Fine\r\n\r\n").status == 204


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_a_connection_that_will_close_is_not_kept(head):
    assert not reply_of(head).keep_alive


@pytest.mark.parametrize("junk", [b"-1\r\n", b"xyz\r\n", b"1\r\nabc", b"ffffffffffff\r\n", b"0" * 300])
def test_chunk_sizes_that_cannot_be_are_malformed(junk):
    with pytest.raises(MalformedError):
        reply_of(HEAD, junk)


def test_a_line_that_never_ends_is_malformed():
    with pytest.raises(MalformedError):
        read(b"data: " + b"x" * 5_000_000)


def test_a_long_error_body_is_read_and_cut():
    reply = reply_of(b"HTTP/1.1 500 No\r\nContent-Length: 9000000\r\n\r\n", *[b"x" * 1_000_000] * 9)
    assert reply.complete
    assert len(reply.body) <= 2_000_000


def test_an_endless_head_is_malformed():
    with pytest.raises(MalformedError):
        reply_of(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000)


@given(
    place=st.integers(0, 600),
    junk=st.binary(min_size=1, max_size=12),
    body=st.sampled_from(list(BODIES.values())),
)
@settings(max_examples=300, deadline=None)
def test_damaged_bytes_are_read_or_malformed_and_nothing_else(place, junk, body):
    wire = HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    damaged = wire[:place] + junk + wire[place + len(junk) :]
    reply = Reply()
    with contextlib.suppress(MalformedError):
        for start in range(0, len(damaged), 50):
            if not reply.complete:
                reply.feed(damaged[start : start + 50], 1.0)
    assert all(count > 0 for count in reply.stream.chunk_tokens)


NAMES = """choices text delta content usage completion_tokens token_ids logprobs error finish_reason token_logprobs
prompt_tokens reasoning"""
KEYS = NAMES.split()
SHAPES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(event=SHAPES)
@settings(max_examples=300, deadline=None)
def test_events_of_any_shape_are_read_or_malformed_and_nothing_else(event):
    with contextlib.suppress(MalformedError):
        stream = read(events(event, completion("a"), usage(1)))
        assert stream.usage_tokens is None or stream.usage_tokens >= 0
        assert stream.finish_reason is None or isinstance(stream.finish_reason, str)
        assert stream.logprobs is None or all(isinstance(value, float) for value in stream.logprobs)
