"""Requests carry what each runtime accepts, and nothing that it refuses."""

import json
from dataclasses import replace

import pytest

from trtgate.errors import UsageError
from trtgate.loads.base import Ask, Target
from trtgate.loads.payload import Encoder, read_bearer, split_url

TARGET = Target("http://host:8000", "m")


def request(target=TARGET, **ask):
    head, _, body = (
        Encoder(target)
        .encode(Ask(**{"at_s": 0.0, "prompt": (1, 2), "max_tokens": 3} | ask))
        .partition(b"\r\n\r\n")
    )
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    assert int(headers["Content-Length"]) == len(body)
    return lines[0], headers, json.loads(body)


def test_vllm_is_asked_for_token_ids():
    assert request()[2]["return_token_ids"] is True


def test_tensorrt_llm_is_asked_for_nothing_that_it_does_not_know():
    body = request(replace(TARGET, dialect="tensorrt-llm"))[2]
    assert set(body) == {
        "model", "prompt", "max_tokens", "min_tokens", "ignore_eos", "temperature", "stream", "stream_options"
    }  # fmt: skip
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_a_plain_endpoint_gets_plain_fields():
    body = request(replace(TARGET, dialect="openai"))[2]
    assert set(body) == {"model", "prompt", "max_tokens", "temperature", "stream", "stream_options"}


def test_text_goes_out_as_text_whatever_is_in_it():
    assert request(prompt='say "é"\n')[2]["prompt"] == 'say "é"\n'


def test_a_chat_has_one_message_of_the_user():
    line, _, body = request(replace(TARGET, path="/v1/chat/completions"), prompt="hi", logprobs=2)
    assert line == "POST /v1/chat/completions HTTP/1.1"
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)
    assert "prompt" not in body


def test_completions_ask_for_log_probabilities_by_number():
    assert request(logprobs=1)[2]["logprobs"] == 1
    assert "logprobs" not in request()[2]


def test_the_path_of_the_address_comes_before_the_route():
    line, headers, _ = request(replace(TARGET, url="http://gateway/llm/"))
    assert line == "POST /llm/v1/completions HTTP/1.1"
    assert headers["Host"] == "gateway"


def test_the_token_is_sent_and_not_shown():
    target = replace(TARGET, bearer="secret")
    assert request(target)[1]["Authorization"] == "Bearer secret"
    assert "secret" not in repr(target)
    assert "Authorization" not in request()[1]


def test_the_token_comes_from_the_environment():
    assert read_bearer("KEY", {"KEY": " abc\n"}) == "abc"


@pytest.mark.parametrize("environ", [{}, {"KEY": ""}, {"KEY": "a b"}, {"KEY": "a\r\nX: y"}, {"KEY": "é"}])
def test_a_token_that_is_none_is_refused_without_being_shown(environ):
    with pytest.raises(UsageError, match="KEY") as caught:
        read_bearer("KEY", environ)
    assert "a b" not in caught.value.message


def test_an_ipv6_address_is_an_address():
    assert split_url(Target("http://[::1]:80", "m")).hostname == "::1"
