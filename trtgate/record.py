"""The base of all that is read from or written to disk: frozen, strict, addressed by digest, written atomically."""

import errno
import hashlib
import json
import os
import tempfile
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from trtgate.errors import TrtgateError, UsageError

_SCHEMA = "add it; the keys are in `docs/profile.md`"
_MAKE_AGAIN = "the file is damaged; make it again"


class Record(BaseModel):
    """A frozen value with a fixed set of fields; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def to_json(self) -> str:
        """The canonical text: sorted keys, two blanks, one final newline; equal records give equal bytes."""
        return json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True, allow_nan=False) + "\n"

    def to_line(self) -> str:
        """The canonical text on one line, for files of JSON lines."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, allow_nan=False) + "\n"

    @property
    def digest(self) -> str:
        """The sha256 of `to_json`, in hexadecimal."""
        return sha256(self.to_json().encode())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a record from a JSON file; refuses (`UsageError`) what is missing, malformed or of another shape."""
        return cls.parse(read_text(path), f"`{path}`")

    @classmethod
    def parse(cls, text: str, where: str) -> Self:
        """Read a record from JSON text; `where` names the source in the message."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise describe_invalid(error, cls, where, made=True) from error

    def write(self, path: Path) -> None:
        """Write `to_json` so that a reader sees the old file or the new one, never half of either."""
        write_atomic(path, self.to_json().encode())


def sha256(data: bytes) -> str:
    """The sha256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """The sha256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_text(path: Path) -> str:
    """The text of a file; `UsageError` where it is missing, a folder, unreadable or not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"`{path}` does not exist", "check the path") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"`{path}` is not a text file", "expected UTF-8") from error
    except OSError as error:
        raise UsageError(
            f"`{path}` cannot be read: {error.strerror}", "check the path and its rights"
        ) from error


def write_atomic(path: Path, data: bytes) -> None:
    """Write under a temporary name in the same folder, flush to disk, rename over `path`, flush the folder."""
    if os.path.isdir(path):  # noqa: PTH112 - `Path.is_dir` raises for a long name
        raise UsageError(f"`{path}` is a folder", "name a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO}
        raise (TrtgateError if full else UsageError)(
            f"cannot write `{path}`: {(error.strerror or '').lower()}",
            "check the folder, its rights and space",
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise TrtgateError(
                f"cannot write `{path}`: {(error.strerror or '').lower()}", "check the space left"
            ) from error
        raise
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make a rename inside `folder` durable; of a file, what was written to it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def describe_invalid(
    error: ValidationError, cls: type[Record], where: str, *, made: bool = False
) -> UsageError:
    """Turn the first complaint of pydantic into one `error:` line and one `hint:` line.

    `made` says that a command wrote the text, so that nobody is asked to correct it by hand.
    """
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return UsageError(f"unknown key `{key}` in {where}", _nearest(cls, first["loc"]))
    if first["type"] == "missing":
        return UsageError(f"`{key}` is missing in {where}", _MAKE_AGAIN if made else _SCHEMA)
    if first["type"] == "json_invalid":
        return UsageError(f"{where} is not valid JSON", _MAKE_AGAIN)
    value = repr(first["input"])
    shown = value if len(value) <= 60 else value[:57] + "..."
    if not key:
        return UsageError(f"{where} holds {shown}", _sentence(first["msg"]))
    hint = _sentence(first["msg"])
    if key == "schema_version":
        hint = f"this version of trtgate reads {first.get('ctx', {}).get('expected', 1)}"
    return UsageError(f"`{key}` in {where} is {shown}", hint)


def _sentence(message: str) -> str:
    text = message.removeprefix("Value error, ").replace("a valid tuple", "a list")
    return text[:1].lower() + text[1:]


def _nearest(cls: type[Record], loc: tuple[int | str, ...]) -> str:
    known = list(_fields_at(cls, loc[:-1]))
    close = get_close_matches(str(loc[-1]), known, n=1, cutoff=0.5)
    return f"did you mean `{close[0]}`?" if close else f"known keys: {', '.join(sorted(known))}"


def _fields_at(cls: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    model: Any = cls
    for part in loc:
        field = getattr(model, "model_fields", {}).get(part)
        if field is not None:
            model = field.annotation
        for option in getattr(model, "__args__", ()):
            if isinstance(option, type) and issubclass(option, BaseModel):
                model = option
    return list(getattr(model, "model_fields", {}))
