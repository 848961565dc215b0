"""Opens a file of traffic, compressed or not, in pieces of whole lines, and refuses what cannot be one."""

import gzip
import io
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import zstandard

from trtgate.errors import TraceError
from trtgate.record import sha256_file

HEAD_BYTES = 1 << 16
PIECE_BYTES = 1 << 21  # pieces that stay in the cache of a processor are the fastest
LONGEST_LINE_BYTES = 1 << 24  # bounds the memory that one endless line can take
LONGEST_TEXT_BYTES = 1 << 28
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)


class Readable(Protocol):
    """Bytes in order."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes, none at the end."""

    def readline(self, size: int, /) -> bytes:
        """Return up to `size` bytes, and no more than one line."""


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


def lines(path: Path, piece_bytes: int | None = None) -> Iterator[bytes]:
    """Yield the file in pieces of about `piece_bytes`, each of whole lines; the last may lack its newline.

    Refuses (`TraceError`) a line of more than 16 MiB, so that memory stays bounded, and damaged compression.
    """
    with open_bytes(path) as file:
        start = 0
        while piece := _read(file, piece_bytes or PIECE_BYTES, path):
            rest = b"" if piece.endswith(b"\n") else _read_line(file, path)
            if len(rest) > LONGEST_LINE_BYTES:
                at = start + piece.rfind(b"\n") + 1
                raise TraceError(
                    f"the line at byte {at} of `{path}` is longer than {LONGEST_LINE_BYTES >> 20} MiB",
                    "give a file with one request or iteration a line",
                )
            whole = piece + rest
            yield whole if start else whole.removeprefix(BYTE_ORDER_MARK)
            start += len(whole)


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


def _read_line(file: Readable, path: Path) -> bytes:
    """Read to the end of the line, or a little more than the longest that is allowed."""
    with _translated(path):
        return file.readline(LONGEST_LINE_BYTES + 1)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        raise TraceError(f"`{path}` is damaged or cut off: {error}", "fetch it again") from error
    except OSError as error:
        raise TraceError(f"`{path}` cannot be read: {error}", "check the path and its rights") from error
