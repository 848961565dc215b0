"""The HTTP process's end of the line to the engine: one stream of tokens a request."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

from .api import Completion

Token = tuple[int, float, str | None]


class EngineDiedError(Exception):
    """The engine's process ended while an answer was due."""


class Stream:
    """Tokens of one request as they come; several at once where the reader is slower than the engine."""

    def __init__(self, number: int) -> None:
        self.number, self.done = number, False
        self._pending: list[Token] = []
        self._arrived = asyncio.Event()

    def put(self, tokens: list[Token]) -> None:
        """Hand over tokens; an empty list says that no more will come."""
        self._pending += tokens
        self.done = not tokens or tokens[-1][2] is not None
        self._arrived.set()

    async def __aiter__(self) -> AsyncIterator[list[Token]]:
        """All tokens that are there, up to the last; refuses (`EngineDiedError`) an early end."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            tokens, self._pending = self._pending, []
            if tokens:
                yield tokens
            if self.done and not self._pending:
                if not tokens or tokens[-1][2] is None:
                    raise EngineDiedError
                return


class EngineClient:
    """Sends commands and sorts what comes back; `ready` and `died` are futures of the engine's life."""

    def __init__(self) -> None:
        self.ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.died = asyncio.Event()
        self._streams: dict[int, Stream] = {}
        self._drains: dict[int, asyncio.Future[list[Any]]] = {}
        self._count = 0
        self._writer: asyncio.StreamWriter | None = None

    async def listen(self, sock: socket.socket) -> None:
        """Read until the engine closes its end; every open stream then ends early."""
        reader, self._writer = await asyncio.open_connection(sock=sock, limit=1 << 28)
        try:
            while text := await reader.readline():
                self._sort(json.loads(text))
        except (ConnectionError, ValueError):
            pass  # a crash resets the connection, or cuts a line in two
        finally:
            self.died.set()
            self.end_streams()

    def end_streams(self) -> None:
        """End every open stream where it is."""
        for stream in self._streams.values():
            stream.put([])

    def start(self, asked: Completion) -> Stream:
        """Hand a request to the engine."""
        self._count += 1
        stream = self._streams[self._count] = Stream(self._count)
        limits = {
            "max_tokens": asked.max_tokens,
            "min_tokens": asked.min_tokens,
            "ignore_eos": asked.ignore_eos,
        }
        self._send({"add": self._count, "prompt": asked.prompt, **limits})
        return stream

    def leave(self, stream: Stream) -> None:
        """Forget a stream, cancelling the request where it is still running."""
        if self._streams.pop(stream.number, None) and not stream.done:
            self._send({"cancel": stream.number})

    async def drain(self, timeout_s: float = 2.0) -> list[Any]:
        """The iteration rows since the last call; none where the engine does not answer in time."""
        self._count = number = self._count + 1
        answer = self._drains[number] = asyncio.get_running_loop().create_future()
        self._send({"drain": number})
        try:
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            return []
        finally:
            del self._drains[number]

    def _send(self, command: dict[str, Any]) -> None:
        if self._writer and not self.died.is_set():
            self._writer.write(json.dumps(command).encode() + b"\n")

    def _sort(self, message: dict[str, Any]) -> None:
        if "tokens" in message:
            for number, token, logprob, finish in message["tokens"]:
                if stream := self._streams.get(number):
                    stream.put([(token, logprob, finish)])
        elif "rows" in message:
            if (waiting := self._drains.get(message["drained"])) and not waiting.done():
                waiting.set_result(message["rows"])
        else:
            self.ready.set_result(message["ready"])
