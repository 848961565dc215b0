"""A server whose answers are known: it streams tokens on a fixed schedule and logs when it really sent each.

Started as a process, `python -m trtgate.loads.oracle`; it prints its port, serves until its input closes,
then writes its log. It needs the standard library only, so that it starts in a moment and holds its schedule.
"""

import argparse
import heapq
import json
import socket
import sys
from array import array
from dataclasses import dataclass, field
from typing import BinaryIO

from trtgate.loads.clock import ANCILLARY_BYTES, Clock, ask_for_stamps
from trtgate.loads.poller import READ, make_poller

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_NOTHING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
_RETRY_S = 0.001
FIRST_NUMBER = 1_000_000


@dataclass(frozen=True, slots=True)
class Script:
    """When chunk k of an answer is due after its request: `ttft_s` + k `itl_s`, with every further wish.

    `bundle` tokens go into a chunk (`itl_s` each); every `stall_every`-th gap lasts `stall_s`; `role` sends
    an empty chunk at once; with `step_s` all streams send together at multiples of it, as an engine does.
    """

    ttft_s: float = 0.2
    itl_s: float = 0.02
    bundle: int = 1
    stall_every: int = 0
    stall_s: float = 0.2
    role: bool = False
    step_s: float = 0.0

    def offsets(self, chunks: int) -> list[float]:
        """The time of each chunk after the request, in seconds."""
        times = [self.ttft_s]
        for number in range(1, chunks):
            stalled = self.stall_every and number % self.stall_every == 0
            times.append(times[-1] + (self.stall_s if stalled else self.itl_s * self.bundle))
        return times

    def at(self, start_s: float, offset_s: float) -> float:
        """The moment to send, given the moment of the request."""
        due_s = start_s + offset_s
        return due_s if not self.step_s else -(-due_s // self.step_s) * self.step_s


@dataclass(slots=True)
class _Talk:
    """One connection and the answer that goes out on it."""

    connection: socket.socket
    buffer: bytes = b""
    chunks: list[bytes] = field(default_factory=list)
    number: bytes = b""
    start_s: float = 0.0
    place: int = 0
    unsent: bytes = b""
    log: "array[float]" = field(default_factory=lambda: array("d"))


class Oracle:
    """The loop: one heap of moments, one poller."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._listener.setblocking(False)
        # The kernel begins to stamp a moment after it is first asked to.
        ask_for_stamps(self._listener)
        self._poller = make_poller()
        self._clock = Clock()
        self._talks: dict[int, _Talk] = {}
        self._due: list[tuple[float, int]] = []
        self._logs: list[array[float]] = []
        self._offsets: list[float] = []
        self._bodies: dict[tuple[int, bool], list[bytes]] = {}

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        return int(self._listener.getsockname()[1])

    def serve(self, control: int) -> None:
        """Serve until the descriptor `control` has something, or its other end closes."""
        self._poller.register(self._listener.fileno(), READ)
        self._poller.register(control, READ)
        while True:
            now_s = self._clock.now()
            while self._due and self._due[0][0] <= now_s:
                self._send(heapq.heappop(self._due)[1])
                now_s = self._clock.now()
            wait_s = self._due[0][0] - now_s if self._due else 1.0
            for fd, _ in self._poller.wait(wait_s):
                if fd == control:
                    return
                if fd == self._listener.fileno():
                    self._accept()
                else:
                    self._receive(fd)
                if self._due and self._due[0][0] <= self._clock.now():
                    self._send(heapq.heappop(self._due)[1])

    def write_log(self, file: BinaryIO) -> None:
        """For each request, as doubles: how many chunks, when it came, when each was sent, in seconds."""
        file.writelines(array("d", [len(log) - 1]).tobytes() + log.tobytes() for log in self._logs)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask_for_stamps(connection)
        self._talks[connection.fileno()] = _Talk(connection)
        self._poller.register(connection.fileno(), READ)

    def _receive(self, fd: int) -> None:
        talk = self._talks.get(fd)
        if talk is None:
            return
        try:
            data, control, _, _ = talk.connection.recvmsg(1 << 20, ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data, control = b"", []
        if not data:
            self._poller.unregister(fd)
            self._talks.pop(fd).connection.close()
            return
        came_s = self._clock.arrival(control)
        if came_s is None:
            came_s = self._clock.now()
        talk.buffer += data
        head, end, body = talk.buffer.partition(b"\r\n\r\n")
        if end and len(body) >= _length(head):
            talk.buffer = b""
            self._begin(talk, head, body, came_s)

    def _begin(self, talk: _Talk, head: bytes, body: bytes, came_s: float) -> None:
        if not head.startswith(b"POST "):
            talk.connection.send(_NOTHING)
            return
        wish = json.loads(body)
        tokens = int(wish.get("max_tokens") or wish["max_completion_tokens"])
        chunks = -(-tokens // self._script.bundle)
        if len(self._offsets) < chunks:
            self._offsets = self._script.offsets(chunks)
        chat = b"/chat/" in head.partition(b"\r\n")[0]
        if (tokens, chat) not in self._bodies:
            self._bodies[tokens, chat] = _chunks(tokens, self._script.bundle, chat=chat)
        talk.chunks = self._bodies[tokens, chat]
        talk.number = b"%d" % (FIRST_NUMBER + len(self._logs))
        talk.log = array("d", [came_s])
        self._logs.append(talk.log)
        talk.start_s, talk.place = came_s, 0
        if self._script.role:
            talk.connection.send(_HEAD + _event(_choice("", 0, chat=chat, role=True)))
        else:
            talk.connection.send(_HEAD)
        heapq.heappush(self._due, (self._script.at(came_s, self._offsets[0]), talk.connection.fileno()))

    def _send(self, fd: int) -> None:
        talk = self._talks.get(fd)
        if talk is None:
            return
        if talk.place < len(talk.chunks):
            talk.log.append(self._clock.now())
            data = talk.unsent + talk.chunks[talk.place]
            if talk.place == 0:
                data = data.replace(b"%d" % FIRST_NUMBER, talk.number, 1)
            talk.place += 1
        else:
            data = talk.unsent
        try:
            talk.unsent = data[talk.connection.send(data) :]
        except BlockingIOError:
            talk.unsent = data
        except OSError:
            return
        if talk.place < len(talk.chunks):
            heapq.heappush(self._due, (self._script.at(talk.start_s, self._offsets[talk.place]), fd))
        elif talk.unsent:
            heapq.heappush(self._due, (self._clock.now() + _RETRY_S, fd))


def _chunks(tokens: int, bundle: int, *, chat: bool) -> list[bytes]:
    """All chunks of an answer; its first token id stands for the number of the request, as the log has it."""
    sizes = [bundle] * (tokens // bundle) + ([tokens % bundle] if tokens % bundle else [])
    same = _event(_choice(" token", bundle, chat=chat))
    chunks = [_event(_choice(" token", sizes[0], chat=chat, first=FIRST_NUMBER)), *[same] * (len(sizes) - 1)]
    if len(sizes) > 1 and sizes[-1] != bundle:
        chunks[-1] = _event(_choice(" token", sizes[-1], chat=chat))
    usage = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": tokens}}
    chunks[-1] += _event(json.dumps(usage)) + _event("[DONE]") + b"0\r\n\r\n"
    return chunks


def _choice(text: str, count: int, *, chat: bool, first: int = 7, role: bool = False) -> str:
    ids = [first, *[7] * (count - 1)] if count else []
    said = {"delta": {"content": text} | ({"role": "assistant"} if role else {})} if chat else {"text": text}
    choice = {"index": 0, **said, "logprobs": None, "finish_reason": None, "token_ids": ids}
    event = {"id": "cmpl-0123456789abcdef", "object": "text_completion", "created": 1_700_000_000}
    return json.dumps(event | {"model": "oracle", "choices": [choice]})


def _event(text: str) -> bytes:
    data = f"data: {text}\n\n".encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


def main() -> None:
    """Print the port, serve until standard input closes, write the log to standard output."""
    parser = argparse.ArgumentParser()
    for name in ("ttft_s", "itl_s", "stall_s", "step_s"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=getattr(Script(), name))
    parser.add_argument("--bundle", type=int, default=1)
    parser.add_argument("--stall-every", type=int, default=0)
    parser.add_argument("--role", action="store_true")
    oracle = Oracle(Script(**vars(parser.parse_args())))
    sys.stdout.buffer.write(f"{oracle.port}\n".encode())
    sys.stdout.buffer.flush()
    oracle.serve(sys.stdin.fileno())
    oracle.write_log(sys.stdout.buffer)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
