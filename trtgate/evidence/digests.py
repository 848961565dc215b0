"""The sha256 of large files, remembered while path, size, time of change and inode stay the same."""

import json
import os
from pathlib import Path

from trtgate.errors import TrtgateError
from trtgate.record import sha256_file, write_atomic

WORTH_BYTES = 1 << 24  # smaller files are hashed faster than they are looked up


def cache_path() -> Path:
    """Where the digests are remembered: the user's cache folder."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "trtgate" / "digests.json"


def digest_files(files: list[Path], *, rehash: bool = False, cache: Path | None = None) -> dict[Path, str]:
    """The sha256 of each file; with `rehash` nothing that was remembered counts.

    A cache that cannot be read or written costs time, never a result.
    """
    cache = cache or cache_path()
    known = {} if rehash else _read(cache)
    found, remembered = {}, dict(known)
    for file in files:
        key = _key(file)
        found[file] = known.get(key) or sha256_file(file)
        if file.stat().st_size >= WORTH_BYTES:
            remembered[key] = found[file]
    if remembered != known:
        _write(cache, remembered)
    return found


def _key(file: Path) -> str:
    status = file.stat()
    return f"{file.resolve()}|{status.st_size}|{status.st_mtime_ns}|{status.st_ino}"


def _read(cache: Path) -> dict[str, str]:
    try:
        data = json.loads(cache.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _write(cache: Path, known: dict[str, str]) -> None:
    try:
        write_atomic(cache, json.dumps(known, indent=1, sort_keys=True).encode())
    except (OSError, TrtgateError):
        return
