"""Opens a file of traffic, compressed or not, in pieces of whole lines, and refuses what cannot be one."""

import gzip
import io
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import zstandard
from numpy.typing import NDArray

from trtgate.errors import TraceError
from trtgate.record import sha256_file

HEAD_BYTES = 1 << 16
PIECE_BYTES = 1 << 21  # pieces that stay in the cache of a processor are the fastest
LONGEST_LINE_BYTES = 1 << 24  # bounds the memory that one endless line can take
LONGEST_TEXT_BYTES = 1 << 28
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)


Piece = bytes | bytearray


class Readable(Protocol):
    """Bytes in order."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes, none at the end."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill a buffer as far as possible, and return how far."""


def read_head(path: Path) -> bytes:
    """Return the first bytes, decompressed, without byte-order mark; refuses what cannot be traffic."""
    with open_bytes(path) as file:
        head = _read(file, HEAD_BYTES, path).removeprefix(BYTE_ORDER_MARK)
    if not head.strip():
        raise TraceError(f"`{path}` is empty", "give a file with traffic in it")
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        raise TraceError(f"`{path}` is a Git LFS pointer, not the data itself", "run `git lfs pull`")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TraceError(f"`{path}` is UTF-16 text", "save it as UTF-8")
    if b"\0" in head and not head.startswith(b"PAR1"):
        raise TraceError(f"`{path}` is binary", "give text, JSON or Parquet, as it is or as `.gz` or `.zst`")
    return head


def lines(path: Path) -> Iterator[Piece]:
    """Yield the file in pieces of whole lines; only the last may lack its newline.

    Refuses (`TraceError`) a line of more than 16 MiB, so that memory stays bounded, and damaged compression.
    """
    with open_bytes(path) as file:
        start, rest, ended = 0, b"", False
        while not ended:
            piece = bytearray(len(rest) + PIECE_BYTES)
            piece[: len(rest)] = rest
            end = _fill(file, piece, len(rest), path)
            ended = end < len(piece)
            cut = end if ended else piece.rfind(b"\n") + 1
            rest = bytes(piece[cut:end])
            del piece[cut:]  # shrinks in place: whole lines are never copied
            if start == 0:
                piece = piece.removeprefix(BYTE_ORDER_MARK)
            start += cut
            if len(rest) > LONGEST_LINE_BYTES:
                raise TraceError(
                    f"the line at byte {start} of `{path}` is longer than {LONGEST_LINE_BYTES >> 20} MiB",
                    "give a file with one request or iteration a line",
                )
            if piece:
                yield piece


def bytes_of(piece: Piece) -> NDArray[np.uint8]:
    """Return the bytes of a piece as an array, read-only whatever the piece is: compiled code knows one type."""
    text = np.frombuffer(piece, np.uint8)
    text.flags.writeable = False
    return text


def pieces(path: Path) -> Iterator[bytes]:
    """Yield the file in pieces cut anywhere, without its byte-order mark."""
    with open_bytes(path) as file:
        piece = _read(file, PIECE_BYTES, path).removeprefix(BYTE_ORDER_MARK)
        while piece:
            yield piece
            piece = _read(file, PIECE_BYTES, path)


def read_whole(path: Path) -> str:
    """Return the text of a file that has to be held at once; refuses (`TraceError`) more than 256 MiB."""
    whole = bytearray()
    for piece in pieces(path):
        whole += piece
        if len(whole) > LONGEST_TEXT_BYTES:
            raise TraceError(
                f"`{path}` is larger than {LONGEST_TEXT_BYTES >> 20} MiB", "save a shorter span of time"
            )
    return whole.decode(errors="replace")


@contextmanager
def open_bytes(path: Path) -> Iterator[Readable]:
    """Open a file for its bytes, decompressed by what it is and not by what it is called."""
    try:
        raw = path.open("rb")
    except FileNotFoundError:
        raise TraceError(f"`{path}` does not exist", "check the path") from None
    except IsADirectoryError:
        raise TraceError(f"`{path}` is a folder", "name the file inside it") from None
    except OSError as error:
        raise TraceError(f"`{path}` cannot be read: {error.strerror}", "check its rights") from error
    with raw:
        yield _decompressed(raw)


@contextmanager
def hashing(path: Path) -> "Iterator[Future[str]]":
    """Compute the sha256 of the bytes on disk beside the reading of them."""
    with ThreadPoolExecutor(1, thread_name_prefix="sha256") as pool:
        yield pool.submit(sha256_file, path)


def _decompressed(raw: io.BufferedReader) -> Readable:
    start = raw.peek(4)[:4]
    if start.startswith(b"\x1f\x8b"):
        return gzip.open(raw)
    if start == b"\x28\xb5\x2f\xfd":
        frames = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        return io.BufferedReader(frames, 1 << 17)
    return raw


def _read(file: Readable, size: int, path: Path) -> bytes:
    """Read exactly `size` bytes, fewer only at the end of the file."""
    parts = []
    with _translated(path):
        while size > 0 and (part := file.read(size)):
            parts.append(part)
            size -= len(part)
    return b"".join(parts)


def _fill(file: Readable, piece: bytearray, filled: int, path: Path) -> int:
    """Read until `piece` is full or the file has ended; returns how much of it is filled."""
    with _translated(path), memoryview(piece) as view:
        while filled < len(piece) and (count := file.readinto(view[filled:])):
            filled += count
    return filled


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        raise TraceError(f"`{path}` is damaged or cut off: {error}", "fetch it again") from error
    except OSError as error:
        raise TraceError(f"`{path}` cannot be read: {error}", "check the path and its rights") from error
