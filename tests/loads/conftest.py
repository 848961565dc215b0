"""A scripted server: answers each request with the bytes that a test gives, cut and ended as it says."""

import json
import socket
import ssl
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from trtgate.loads.base import Target

Step = bytes | Literal["close", "reset", "hang"]


@dataclass
class ScriptedServer:
    """Plays script number i for request number i, the last one again and again; or one by the first token id."""

    scripts: Sequence[Sequence[Step]] = ()
    by_prompt: dict[int, Sequence[Step]] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    connections: int = 0
    tls: ssl.SSLContext | None = None
    closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    @property
    def target(self) -> Target:
        scheme = "https" if self.tls else "http"
        return Target(f"{scheme}://127.0.0.1:{self.listener.getsockname()[1]}", "m")

    def accept(self) -> None:
        while not self.closing.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            self.threads.append(threading.Thread(target=self.serve, args=(connection,)))
            self.threads[-1].start()

    def serve(self, connection: socket.socket) -> None:
        connection.settimeout(0.05)
        if self.tls is not None:
            connection.settimeout(5)
            try:
                connection = self.tls.wrap_socket(connection, server_side=True)
            except OSError:
                connection.close()
                return
            connection.settimeout(0.05)
        with connection:
            while (script := self.request(connection)) is not None:
                if not self.play(connection, script):
                    return

    def request(self, connection: socket.socket) -> Sequence[Step] | None:
        data = b""
        while b"\r\n\r\n" not in data or len(data) < expected(data):
            try:
                part = connection.recv(65_536)
            except TimeoutError:
                if self.closing.is_set():
                    return None
                continue
            except OSError:
                return None
            if not part:
                return None
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        with self.lock:
            self.heads.append(head.decode())
            self.bodies.append(json.loads(body))
            if self.by_prompt:
                return self.by_prompt[self.bodies[-1]["prompt"][0]]
            return self.scripts[min(len(self.bodies), len(self.scripts)) - 1]

    def play(self, connection: socket.socket, script: Sequence[Step]) -> bool:
        for step in script:
            if isinstance(step, bytes):
                connection.sendall(step)
                continue
            if step == "hang":
                self.closing.wait(10)
            if step == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        return True

    def close(self) -> None:
        self.closing.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(5)


def expected(data: bytes) -> int:
    head = data.partition(b"\r\n\r\n")[0]
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return len(head) + 4 + int(length.partition(b":")[2])


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    scripted = ScriptedServer()
    yield scripted
    scripted.close()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
DONE = b"[DONE]"


def token(text: str = "x", **fields: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "text": text, "finish_reason": None, **fields}]}).encode()


def usage(tokens: int, prompt: int = 3) -> bytes:
    return json.dumps(
        {"choices": [], "usage": {"completion_tokens": tokens, "prompt_tokens": prompt}}
    ).encode()


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def stream(*events: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return HEAD + b"".join(chunk(b"data: " + event + b"\n\n") for event in events) + end


@dataclass(frozen=True)
class Wire:
    """The builders of bytes, for tests, which cannot import this file."""

    head = HEAD
    done = DONE
    token = staticmethod(token)
    usage = staticmethod(usage)
    chunk = staticmethod(chunk)
    stream = staticmethod(stream)


@pytest.fixture
def wire() -> Wire:
    return Wire()
