"""One HTTP/1.1 response, parsed as its bytes arrive; the hot path of the client, hence by hand."""

from collections.abc import Callable

from trtgate.loads.stream import MalformedError, Stream

_HEAD_LIMIT = 65_536
_CHUNK_LIMIT = 1 << 22
_LENGTH_LIMIT = 1 << 40
_BODY_LIMIT = 1 << 20


class Reply:
    """Head, framing (chunked, length or until close) and body; a body of status 200 goes on to the stream."""

    __slots__ = ("_buffer", "_left", "_next", "body", "complete", "keep_alive", "status", "stream")

    def __init__(self) -> None:
        self.status: int | None = None
        self.keep_alive = True
        self.complete = False
        self.body = b""
        self.stream = Stream()
        self._buffer = b""
        self._left = 0
        self._next: Callable[[bytes, float], None] = self._head

    @property
    def untouched(self) -> bool:
        """Whether not one byte of a response has come."""
        return self.status is None and not self._buffer

    def feed(self, data: bytes, at_s: float) -> None:
        """Take bytes that arrived at `at_s`; `MalformedError` where they break the protocol."""
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        self._next(data, at_s)

    def close(self) -> None:
        """The peer closed: this completes a body without a length, and nothing else."""
        if self._next == self._until_close:
            self._finish()

    def _head(self, data: bytes, at_s: float) -> None:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > _HEAD_LIMIT:
                raise MalformedError("response head is too long")
            self._buffer = data
            return
        lines = data[:end].split(b"\r\n")
        status, version = _status(lines[0])
        rest = data[end + 4 :]
        if 100 <= status < 200:
            self._buffer = b""
            self._head(rest, at_s)
            return
        self.status = status
        self._frame(dict(_header(line) for line in lines[1:]), version)
        if rest or self._next == self._length:
            self._next(rest, at_s)

    def _frame(self, headers: dict[bytes, bytes], version: bytes) -> None:
        connection = headers.get(b"connection", b"").lower()
        self.keep_alive = connection == b"keep-alive" if version == b"HTTP/1.0" else connection != b"close"
        if b"chunked" in headers.get(b"transfer-encoding", b"").lower():
            self._next = self._chunks
        elif b"content-length" in headers:
            self._left = _number(headers[b"content-length"], 10, _LENGTH_LIMIT)
            self._next = self._length
        elif self.status in (204, 304):
            self._next = self._length
        else:
            self.keep_alive = False
            self._next = self._until_close

    def _chunks(self, data: bytes, at_s: float) -> None:
        start = 0
        while True:
            line = data.find(b"\r\n", start)
            if line < 0:
                if len(data) - start > 256:
                    raise MalformedError("chunk size is missing")
                break
            size = _number(data[start:line], 16, _CHUNK_LIMIT)
            if size == 0:
                self._next = self._trailer
                self._trailer(data[line:], at_s)
                return
            stop = line + 2 + size
            if len(data) < stop + 2:
                break
            if data[stop : stop + 2] != b"\r\n":
                raise MalformedError("chunk does not end where it says")
            self._piece(data[line + 2 : stop], at_s)
            start = stop + 2
        self._buffer = data[start:]

    def _trailer(self, data: bytes, _at_s: float) -> None:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > _HEAD_LIMIT:
                raise MalformedError("trailer is too long")
            self._buffer = data
            return
        self.keep_alive = self.keep_alive and len(data) == end + 4
        self._finish()

    def _length(self, data: bytes, at_s: float) -> None:
        piece = data[: self._left]
        self._left -= len(piece)
        if piece:
            self._piece(piece, at_s)
        if self._left == 0:
            self.keep_alive = self.keep_alive and len(data) == len(piece)
            self._finish()

    def _until_close(self, data: bytes, at_s: float) -> None:
        self._piece(data, at_s)

    def _finish(self) -> None:
        self.complete = True
        self.stream.finish()

    def _piece(self, piece: bytes, at_s: float) -> None:
        if self.status == 200:
            self.stream.feed(piece, at_s)
        elif len(self.body) < _BODY_LIMIT:
            self.body += piece


def _status(line: bytes) -> tuple[int, bytes]:
    parts = line.split(None, 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
        raise MalformedError(f"not an HTTP/1.1 response: {line[:40]!r}")
    return int(parts[1]), parts[0]


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.strip().lower(), value.strip()


def _number(text: bytes, base: int, limit: int) -> int:
    try:
        value = int(text.partition(b";")[0], base)
    except ValueError:
        raise MalformedError(f"not a length: {text[:20]!r}") from None
    if not 0 <= value <= limit:
        raise MalformedError(f"length {value} is out of range")
    return value
