"""Server-sent events of an OpenAI-shaped stream: which carry tokens, how many, and when they came."""

import math
from array import array
from typing import Any

from pydantic_core import from_json

_MARK = b"[DONE]"
_LINE_LIMIT = 1 << 22


class MalformedError(ValueError):
    """Bytes that are not what the protocol says; becomes the error `malformed` of the answer."""


class Stream:
    """Collects one streamed answer from pieces of its body, cut at any byte.

    A chunk counts when it carries text, reasoning, a tool call or token ids, or raises the running usage;
    a role alone is no token.
    """

    __slots__ = (
        "_carry",
        "_data",
        "chunk_s",
        "chunk_tokens",
        "counted",
        "done",
        "fault",
        "finish_reason",
        "ids",
        "known",
        "logprobs",
        "prompt_tokens",
        "usage_tokens",
    )

    def __init__(self) -> None:
        self.chunk_s = array("d")
        self.chunk_tokens = array("H")
        self.known = True
        self.counted = 0
        self.ids: array[int] | None = None
        self.logprobs: list[float] | None = None
        self.usage_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.finish_reason: str | None = None
        self.done = False
        self.fault = ""
        self._carry = b""
        self._data: bytes | None = None

    def feed(self, piece: bytes, at_s: float) -> None:
        """Take a piece of the body that arrived at `at_s`."""
        if self._carry:
            piece = self._carry + piece
        if b"\r" in piece:
            piece = _plain_ends(piece)
        lines = piece.split(b"\n")
        self._carry = lines.pop()
        if len(self._carry) > _LINE_LIMIT:
            raise MalformedError("a line of the stream does not end")
        for line in lines:
            if line[:5] == b"data:":
                self._data = line[5:] if self._data is None else self._data + b"\n" + line[5:]
            elif not line and self._data is not None:
                data, self._data = self._data, None
                self._event(data, at_s)

    def finish(self) -> None:
        """The body ended: an end mark without its blank line still counts, any other half event does not."""
        last = self._carry.strip().removeprefix(b"data:").strip() or (self._data or b"").strip()
        if last == _MARK:
            self.done = True

    def _event(self, data: bytes, at_s: float) -> None:
        try:
            event = from_json(data)
        except ValueError:
            if data.strip() != _MARK:
                raise MalformedError(f"event is not JSON: {data[:80]!r}") from None
            self.done = True
            return
        try:
            self._take(event, at_s)
        except (AttributeError, TypeError, KeyError, OverflowError, ValueError):
            raise MalformedError(f"event has another shape: {data[:80]!r}") from None

    def _take(self, event: dict[str, Any], at_s: float) -> None:
        choices = event.get("choices")
        usage = event.get("usage")
        if usage:
            self._usage(usage)
        if choices:
            self._choice(choices[0], at_s)
        elif not usage and (event.get("error") or event.get("object") == "error"):
            self.fault = str(event.get("error") or event.get("message"))[:200]

    def _choice(self, choice: dict[str, Any], at_s: float) -> None:
        part = choice.get("delta") or choice
        ids = choice.get("token_ids") or part.get("token_ids")
        if ids or part.get("text") or _said(part) or self._rose():
            self._count(ids, at_s)
        if choice.get("finish_reason") is not None:
            self.finish_reason = str(choice["finish_reason"])
        if choice.get("logprobs"):
            self._logprobs(choice["logprobs"])

    def _rose(self) -> bool:
        return self.usage_tokens is not None and self.usage_tokens > self.counted

    def _count(self, ids: list[int] | None, at_s: float) -> None:
        self.chunk_s.append(at_s)
        if ids:
            count = len(ids)
            if self.ids is None:
                self.ids = array("i")
            self.ids.extend(ids)
        elif self.usage_tokens is not None and self.usage_tokens > self.counted:
            count = self.usage_tokens - self.counted
        else:
            count = 1
            self.known = False
        self.counted += count
        self.chunk_tokens.append(count)

    def _usage(self, usage: dict[str, Any]) -> None:
        self.usage_tokens = _count_of(usage, "completion_tokens")
        self.prompt_tokens = _count_of(usage, "prompt_tokens")

    def _logprobs(self, logprobs: dict[str, Any]) -> None:
        values = logprobs.get("token_logprobs")
        if values is None:
            values = [entry.get("logprob") for entry in logprobs.get("content") or ()]
        if self.logprobs is None:
            self.logprobs = []
        self.logprobs.extend(math.nan if value is None else float(value) for value in values)


def _count_of(usage: dict[str, Any], name: str) -> int | None:
    count = usage.get(name)
    if count is not None and (type(count) is not int or count < 0):
        raise ValueError(f"{name} is {count!r}")
    return count


def _said(part: dict[str, Any]) -> bool:
    thought = part.get("reasoning_content") or part.get("reasoning")
    return bool(part.get("content") or thought or part.get("tool_calls"))


def _plain_ends(piece: bytes) -> bytes:
    """Make all line ends LF; a final CR waits, since its LF may come next. JSON holds no raw CR."""
    held = piece.endswith(b"\r")
    plain = piece[: len(piece) - held].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return plain + b"\r" if held else plain
