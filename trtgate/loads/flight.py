"""One request under way, and the answer made of it."""

import math
import re
from array import array
from typing import Literal

from trtgate.loads.base import Answer, Ask
from trtgate.loads.client import Line
from trtgate.loads.reply import Reply

_NAN = math.nan
_TOO_LONG = re.compile(
    rb"max_num_tokens|max(imum)?[ _]?(context|model|seq|input)|context length|too long", re.IGNORECASE
)


class Flight:
    """An ask from its scheduled time to its end; mutable, alive only while the request is."""

    __slots__ = (
        "ask",
        "connect_s",
        "deadline_s",
        "index",
        "line",
        "queued",
        "reply",
        "scheduled_s",
        "sent_s",
    )

    def __init__(self, index: int, ask: Ask, scheduled_s: float) -> None:
        self.index = index
        self.ask = ask
        self.scheduled_s = scheduled_s
        self.sent_s = _NAN
        self.connect_s = _NAN
        self.queued = False
        self.deadline_s = math.inf
        self.line: Line | None = None
        self.reply = Reply()

    def verdict(self) -> str | None:
        """The error of a response that is complete, `None` where it is a whole answer."""
        reply = self.reply
        if reply.status != 200:
            long = reply.status in (400, 413, 422) and _TOO_LONG.search(reply.body)
            return "over limit" if long else f"http {reply.status}"
        if reply.stream.fault:
            return "stream error"
        if not reply.stream.chunk_s:
            return "no tokens"
        return None if reply.stream.done else "truncated"

    def answer(self, error: str | None, end_s: float, detail: str = "") -> Answer:
        """The outcome; an error that comes after the end mark changes nothing."""
        stream = self.reply.stream
        if stream.done and error is not None:
            error = self.verdict()
        tokens, source = self._tokens()
        return Answer(
            index=self.index,
            tag=self.ask.tag,
            scheduled_s=self.scheduled_s,
            sent_s=self.sent_s,
            first_s=stream.chunk_s[0] if stream.chunk_s else _NAN,
            last_s=stream.chunk_s[-1] if stream.chunk_s else _NAN,
            end_s=end_s,
            connect_s=self.connect_s,
            queued=self.queued,
            chunk_s=stream.chunk_s,
            chunk_tokens=stream.chunk_tokens,
            chunk_tokens_known=stream.known or len(stream.chunk_s) == tokens,
            tokens=tokens,
            max_tokens=self.ask.max_tokens,
            prompt_tokens=stream.prompt_tokens,
            tokens_source=source,
            error=error,
            detail=detail or stream.fault or self.reply.body[:300].decode("utf-8", "replace"),
            status=self.reply.status,
            finish_reason=stream.finish_reason,
            packed_ids=stream.ids,
            logprobs=None if stream.logprobs is None else tuple(stream.logprobs),
        )

    def _tokens(self) -> tuple[int, Literal["usage", "token_ids", "chunks"]]:
        stream = self.reply.stream
        if stream.usage_tokens is not None:
            return stream.usage_tokens, "usage"
        if stream.ids is not None and len(stream.ids) == stream.counted:
            return len(stream.ids), "token_ids"
        return stream.counted, "chunks"


def unsent(index: int, ask: Ask, scheduled_s: float) -> Answer:
    """The outcome of an ask that was never sent."""
    return Answer(
        index=index,
        tag=ask.tag,
        scheduled_s=scheduled_s,
        sent_s=_NAN,
        first_s=_NAN,
        last_s=_NAN,
        end_s=_NAN,
        connect_s=_NAN,
        queued=False,
        chunk_s=array("d"),
        chunk_tokens=array("H"),
        chunk_tokens_known=False,
        tokens=0,
        max_tokens=ask.max_tokens,
        prompt_tokens=None,
        tokens_source="chunks",
        error="not sent",
        detail="",
        status=None,
        finish_reason=None,
    )
