"""The OpenAI completion protocol: what a request body asks for, and what is answered."""

import codecs
import json
import time
from dataclasses import dataclass
from typing import Any


class BodyError(ValueError):
    """A request body that is answered with 400; the text says why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request must fit into, in tokens; without chunked prefill a prompt must fit one iteration."""

    vocab: int
    max_seq_len: int
    longest_prompt: int


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion asked for."""

    prompt: list[int]
    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    stream: bool
    usage: bool
    logprobs: bool
    token_ids: bool


def parse_completion(text: bytes, limits: Limits) -> Completion:
    """Read a body of `/v1/completions`; refuses (`BodyError`) what cannot be answered as asked."""
    try:
        body = json.loads(text)
    except ValueError as error:
        raise BodyError(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BodyError("the body must be a JSON object")
    for name, value in (("n", 1), ("best_of", 1), ("temperature", 0), ("echo", False)):
        if body.get(name) not in {None, value}:
            raise BodyError(f"`{name}` can only be {json.dumps(value)}: answers are greedy, and one each")
    prompt = _prompt(body.get("prompt"), limits)
    max_tokens = _count(body, "max_tokens", 16, least=1)
    if len(prompt) + max_tokens > limits.max_seq_len:
        raise BodyError(
            f"{len(prompt)} prompt tokens and max_tokens {max_tokens} exceed max_seq_len {limits.max_seq_len}"
        )
    options = body.get("stream_options") or {}
    return Completion(
        prompt,
        max_tokens,
        _count(body, "min_tokens", 0),
        ignore_eos=_flag(body, "ignore_eos"),
        stream=_flag(body, "stream"),
        usage=isinstance(options, dict) and _flag(options, "include_usage"),
        logprobs=body.get("logprobs") not in {None, False},
        token_ids=_flag(body, "return_token_ids"),
    )


def error_body(message: str, code: int) -> dict[str, Any]:
    """The body of an answer that is not 200."""
    return {
        "error": {
            "message": message,
            "type": "BadRequestError" if code == 400 else "ServerError",
            "code": code,
        }
    }


class Writer:
    """Turns a request's tokens into choices, events and usage; holds back half a character."""

    def __init__(self, number: int, model: str, asked: Completion) -> None:
        self._asked, self._count = asked, 0
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        head = {
            "id": f"cmpl-{number}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._head = json.dumps(head)[:-1]

    def event(self, token: int, logprob: float, finish: str | None) -> str:
        """One server-sent event with one token."""
        return f'data: {self._head}, "choices": [{self._choice([token], [logprob], finish)}]}}\n\n'

    def last_events(self) -> str:
        """What follows the last token: the usage, where asked for, and the end mark."""
        usage = f'data: {self._head}, "choices": [], "usage": {self._usage()}}}\n\n'
        return (usage if self._asked.usage else "") + "data: [DONE]\n\n"

    def whole(self, tokens: list[int], logprobs: list[float], finish: str | None) -> str:
        """The body of an answer that is not streamed."""
        choice = self._choice(tokens, logprobs, finish)
        return f'{self._head}, "choices": [{choice}], "usage": {self._usage()}}}'

    def _choice(self, tokens: list[int], logprobs: list[float], finish: str | None) -> str:
        self._count += len(tokens)
        texts = [self._decode(bytes([token]) if token < 256 else b"\xff") for token in tokens]
        text = json.dumps("".join(texts))
        scored = {"tokens": texts, "token_logprobs": logprobs, "top_logprobs": None, "text_offset": None}
        scores = json.dumps(scored if self._asked.logprobs else None)
        ids = f', "token_ids": {tokens}' if self._asked.token_ids else ""
        ending = f'"{finish}"' if finish else "null"
        return f'{{"index": 0, "text": {text}, "logprobs": {scores}, "finish_reason": {ending}{ids}}}'

    def _usage(self) -> str:
        prompt, answer = len(self._asked.prompt), self._count
        return json.dumps(
            {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
        )


def _prompt(value: object, limits: Limits) -> list[int]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    tokens = list(value.encode()) if isinstance(value, str) else value
    if not isinstance(tokens, list) or not tokens or any(type(token) is not int for token in tokens):
        raise BodyError("`prompt` must be one text or one list of token ids, not empty")
    if min(tokens) < 0 or max(tokens) >= limits.vocab:
        raise BodyError(f"`prompt` holds a token id outside 0..{limits.vocab - 1}")
    if len(tokens) > limits.longest_prompt:
        raise BodyError(
            f"{len(tokens)} prompt tokens exceed max_num_tokens {limits.longest_prompt} unchunked"
        )
    return tokens


def _count(body: dict[str, Any], name: str, default: int, least: int = 0) -> int:
    value = default if body.get(name) is None else body[name]
    if type(value) is not int or value < least:
        raise BodyError(f"`{name}` must be a whole number of at least {least}")
    return value


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value not in {None, True, False}:
        raise BodyError(f"`{name}` must be true or false")
    return bool(value)
