"""From an ask to the bytes of its request; written ahead of time, so that sending is one call."""

import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from trtgate.errors import UsageError
from trtgate.loads.base import Ask, Target

_DIALECTS: dict[str, dict[str, Any]] = {
    "vllm": {"ignore_eos": True, "return_token_ids": True},
    # TensorRT-LLM refuses unknown fields, `return_token_ids` among them; its running usage counts tokens.
    "tensorrt-llm": {"ignore_eos": True},
    "openai": {},
}


class Encoder:
    """Requests of one target; what is the same in all of them is made once."""

    def __init__(self, target: Target) -> None:
        split = split_url(target)
        lines = [
            f"POST {split.path.rstrip('/')}{target.path} HTTP/1.1",
            f"Host: {split.netloc.rpartition('@')[2]}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            "User-Agent: trtgate",
            *([f"Authorization: Bearer {target.bearer}"] if target.bearer else []),
            "Content-Length: ",
        ]
        self._head = "\r\n".join(lines).encode("latin-1")
        self._chat = target.chat
        self._fixed_length = target.dialect != "openai"
        options = {"include_usage": True}
        if target.dialect == "tensorrt-llm":
            options["continuous_usage_stats"] = True
        fields = {"model": target.model, "temperature": 0, "stream": True, "stream_options": options}
        self._fields = json.dumps(fields | _DIALECTS[target.dialect])[:-1]

    def encode(self, ask: Ask) -> bytes:
        """The whole HTTP/1.1 request of an ask; `UsageError` for token ids to a chat endpoint."""
        body = f"{self._fields}, {self._own(ask)}}}".encode()
        return b"%b%d\r\n\r\n%b" % (self._head, len(body), body)

    def _own(self, ask: Ask) -> str:
        parts = [f'"max_tokens": {ask.max_tokens}']
        if self._fixed_length:
            parts.append(f'"min_tokens": {ask.max_tokens}')
        if self._chat:
            parts.append(f'"messages": [{{"role": "user", "content": {json.dumps(_text(ask))}}}]')
        elif isinstance(ask.prompt, str):
            parts.append(f'"prompt": {json.dumps(ask.prompt)}')
        else:
            parts.append(f'"prompt": [{",".join(map(str, ask.prompt))}]')
        if ask.logprobs is not None and self._chat:
            parts.append(f'"logprobs": true, "top_logprobs": {ask.logprobs}')
        elif ask.logprobs is not None:
            parts.append(f'"logprobs": {ask.logprobs}')
        return ", ".join(parts)


def _text(ask: Ask) -> str:
    if not isinstance(ask.prompt, str):
        raise UsageError("a chat endpoint takes text, not token ids", "use `/v1/completions` or text")
    return ask.prompt


def split_url(target: Target) -> SplitResult:
    """The parts of the target's URL; `UsageError` unless it is http(s) with a host."""
    try:
        split = urlsplit(target.url)
        port = split.port
    except ValueError:
        split, port = urlsplit(""), None
    if split.scheme not in ("http", "https") or not split.hostname or port == 0:
        raise UsageError(f"`{target.url}` is not the address of a server", "write it as `http://host:port`")
    return split


def read_bearer(name: str, environ: Mapping[str, str] = os.environ) -> str:
    """The bearer token in an environment variable; `UsageError` where unset, or unfit for a header."""
    token = environ.get(name, "").strip()
    if not token:
        raise UsageError(f"`{name}` is not set in the environment", f"run `export {name}=...` first")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"`{name}` holds characters that no token has", "check for blanks and line ends")
    return token
