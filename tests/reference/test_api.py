import json

import pytest

from trtgate.reference.api import BodyError, Limits, Writer, parse_completion

LIMITS = Limits(vocab=320, max_seq_len=64, longest_prompt=32)


def parse(**body):
    return parse_completion(json.dumps(body).encode(), LIMITS)


def test_text_becomes_its_bytes():
    assert parse(prompt="hé").prompt == [104, 195, 169]


def test_a_list_with_one_prompt_is_that_prompt():
    assert parse(prompt=[[1, 2]]).prompt == parse(prompt=[1, 2]).prompt == [1, 2]


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({}, "`prompt`"),
        ({"prompt": []}, "not empty"),
        ({"prompt": ["a", "b"]}, "`prompt`"),
        ({"prompt": [1, 320]}, "0..319"),
        ({"prompt": [True]}, "token ids"),
        ({"prompt": "a" * 33}, "33 prompt tokens exceed"),
        ({"prompt": "a", "max_tokens": 64}, "exceed max_seq_len 64"),
        ({"prompt": "a", "max_tokens": 0}, "`max_tokens`"),
        ({"prompt": "a", "max_tokens": "9"}, "`max_tokens`"),
        ({"prompt": "a", "temperature": 0.7}, "`temperature`"),
        ({"prompt": "a", "n": 2}, "`n`"),
        ({"prompt": "a", "stream": "yes"}, "`stream`"),
    ],
)
def test_a_body_that_cannot_be_answered_is_refused_by_name(body, part):
    with pytest.raises(BodyError) as caught:
        parse(**body)
    assert part in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff"])
def test_what_is_no_json_object_is_refused(text):
    with pytest.raises(BodyError):
        parse_completion(text, LIMITS)


def test_events_put_together_are_the_text_of_the_whole_answer():
    asked = parse(prompt="x", return_token_ids=True)
    tokens = [*"né€".encode(), 300]
    streamed = Writer(1, "tiny", asked)
    events = [json.loads(streamed.event(token, -1.0, None).removeprefix("data: ")) for token in tokens]
    whole = json.loads(Writer(1, "tiny", asked).whole(tokens, [-1.0] * 7, "length"))
    assert (
        "".join(event["choices"][0]["text"] for event in events) == whole["choices"][0]["text"] == "né€\ufffd"
    )
    assert whole["choices"][0]["token_ids"] == tokens
