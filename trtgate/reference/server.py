"""The HTTP side: `trtllm-serve`'s routes over the engine's process, from the bound port to a clean end."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from .api import BodyError, Completion, Limits, Writer, error_body, parse_completion
from .client import EngineClient, EngineDiedError
from .settings import Settings

VERSION = {"version": "1.2.0", "reference": True}
UNAVAILABLE = "LLM is unavailable. Please check the server logs for more details."
PARENT_WATCH_S = 0.25


class Answer(Response):
    """A completion sent as it is computed; a client that goes away frees its place in the engine."""

    def __init__(self, engine: EngineClient, asked: Completion, model: str) -> None:
        super().__init__()
        self._engine, self._asked = engine, asked
        self._stream = engine.start(asked)
        self._writer = Writer(self._stream.number, model, asked)

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, watching for a disconnect beside it."""
        work = asyncio.ensure_future(self._events(send) if self._asked.stream else self._whole(send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
        except EngineDiedError:
            return
        finally:
            work.cancel()
            gone.cancel()
            self._engine.leave(self._stream)

    async def _events(self, send: Send) -> None:
        await send(_start(200, b"text/event-stream; charset=utf-8"))
        async for tokens in self._stream:
            text = "".join(self._writer.event(*token) for token in tokens)
            ended = tokens[-1][2] is not None
            text += self._writer.last_events() if ended else ""
            await send({"type": "http.response.body", "body": text.encode(), "more_body": not ended})

    async def _whole(self, send: Send) -> None:
        every = [token async for tokens in self._stream for token in tokens]
        text = self._writer.whole(
            [token for token, _, _ in every], [score for _, score, _ in every], every[-1][2]
        )
        await send(_start(200, b"application/json"))
        await send({"type": "http.response.body", "body": text.encode()})


class Routes:
    """The handlers of one server."""

    def __init__(self, engine: EngineClient, settings: Settings) -> None:
        self._engine, self._settings = engine, settings
        self._name = Path(settings.model).name
        self._owed_errors = 0.0

    def app(self) -> Starlette:
        """The application with all routes."""
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/version", self.version),
                Route("/v1/models", self.models),
                Route("/metrics", self.metrics),
                Route("/server_info", self.server_info),
                Route("/v1/completions", self.completions, methods=["POST"]),
            ]
        )

    async def health(self, _: Request) -> Response:
        """200 with an empty body, or 503 when the engine is gone."""
        return Response(UNAVAILABLE, 503) if self._engine.died.is_set() else Response()

    async def version(self, _: Request) -> Response:
        """The TensorRT-LLM version that is imitated, and that it is an imitation."""
        return JSONResponse(VERSION)

    async def models(self, _: Request) -> Response:
        """A list with the one model."""
        card = {"id": self._name, "object": "model", "owned_by": "trtgate-reference"}
        return JSONResponse({"object": "list", "data": [card]})

    async def metrics(self, _: Request) -> Response:
        """The iteration rows since the last read."""
        return JSONResponse(await self._engine.drain() if self._settings.iter_stats else [])

    async def server_info(self, _: Request) -> Response:
        """Effective limits, grids and what capturing cost; 503 before the engine is ready."""
        if not self._engine.ready.done():
            return Response(UNAVAILABLE, 503)
        return JSONResponse(self._engine.ready.result())

    async def completions(self, request: Request) -> Response:
        """One completion, streamed or whole; 400 for a body that cannot be answered."""
        if not self._engine.ready.done() or self._engine.died.is_set():
            return JSONResponse(error_body(UNAVAILABLE, 503), 503)
        info: dict[str, Any] = self._engine.ready.result()
        longest = min(info["max_seq_len"], info["kv_tokens"])
        longest_prompt = longest if self._settings.chunked_prefill else self._settings.max_num_tokens
        try:
            asked = parse_completion(await request.body(), Limits(info["vocab"], longest, longest_prompt))
        except BodyError as error:
            return JSONResponse(error_body(str(error), 400), 400)
        self._owed_errors += self._settings.faults.error_rate
        if self._owed_errors >= 1:
            self._owed_errors -= 1
            return JSONResponse(error_body("fault `error-rate`", 500), 500)
        return Answer(self._engine, asked, self._name)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `serve`: uvicorn raises them again at its end."""
        yield


async def serve(settings: Settings, listener: socket.socket, line: socket.socket, parent: int) -> int:
    """Answer until a signal or the end of process `parent` (0: not watched), or the engine's death (status 1)."""
    stop, engine = asyncio.Event(), EngineClient()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    waits: set[asyncio.Future[Any]] = {loop.create_task(_until(stop)), loop.create_task(_until(engine.died))}
    if parent:
        waits.add(loop.create_task(_outlive(parent)))
    listening = loop.create_task(engine.listen(line))
    if not settings.faults.early_health:
        await asyncio.wait({engine.ready, *waits}, return_when=asyncio.FIRST_COMPLETED)
    if not any(wait.done() for wait in waits):
        app = Routes(engine, settings).app()
        config = uvicorn.Config(app, access_log=False, lifespan="on", timeout_graceful_shutdown=1)
        server = _Server(config)
        listener.listen(config.backlog)  # before uvicorn says that it is complete
        serving = loop.create_task(server.serve(sockets=[listener]))
        await asyncio.wait({serving, *waits}, return_when=asyncio.FIRST_COMPLETED)
        engine.end_streams()
        server.should_exit = True
        await serving
    status = int(engine.died.is_set() and not stop.is_set())
    for task in (*waits, listening):
        task.cancel()
    return status


async def _outlive(parent: int) -> None:
    """Return when this process has another parent than `parent`."""
    while os.getppid() == parent:
        await asyncio.sleep(PARENT_WATCH_S)


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _start(status: int, kind: bytes) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]}
