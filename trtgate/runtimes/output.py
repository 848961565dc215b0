"""Follows what a runtime prints: every line to disk with secrets masked, a bounded tail in memory."""

import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from io import FileIO
from pathlib import Path

from trtgate.errors import UsageError

TAIL_LINES = 4_000
_LONGEST = 16_384
_SECRET_NAME = re.compile(r"(?i)(token|secret|passw|credential|api_?key|access_?key|private_?key|auth)")
_ALLOWED = re.compile(
    r"(PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|LD_PRELOAD|VIRTUAL_ENV|PYTHONPATH|PYTHONHASHSEED"
    r"|XDG_CACHE_HOME|XDG_RUNTIME_DIR|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|(?i:https?_proxy|no_proxy)"
    r"|(CUDA|NVIDIA|NCCL|HF|HUGGINGFACE|TRANSFORMERS|TORCH|PYTORCH|TRITON|TLLM|TRTLLM|VLLM|FLASHINFER|OMP|MKL|OPENBLAS"
    r"|OMPI|UCX|NUMBA|SLURM_JOB)_\w+)"
)
_SKEWS = re.compile(
    r"TLLM_(PROFILE|TORCH_PROFILE|METRICS_ALL_RANKS)|VLLM_TORCH_PROFILER"
)  # change what is measured
_BRACKETS = re.compile(r"\[[^\]]*\]|\d\d:\d\d(:\d\d)?([.,]\d+)?|\d\d-\d\d")

_REFERENCE = re.compile(r"\$\{(\w+)\}")
_ACCESS = re.compile(r'"(GET|POST) /')  # answers to our own probes


def clean_environment(own: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """What a runtime gets of our environment: names it may need, then the profile's own, `${NAME}` filled."""
    kept = {name: value for name, value in own.items() if _ALLOWED.fullmatch(name) and not _SKEWS.match(name)}
    return kept | {name: _filled(name, value, own) for name, value in extra.items()}


def _filled(name: str, value: str, own: Mapping[str, str]) -> str:
    for wanted in _REFERENCE.findall(value):
        if wanted not in own:
            raise UsageError(
                f"`${{{wanted}}}`, wanted by `{name}` in `runtime.env`, is not set", f"export `{wanted}`"
            )
    return _REFERENCE.sub(lambda match: own[match.group(1)], value)


def secrets_of(*environments: Mapping[str, str]) -> tuple[str, ...]:
    """Values that must not be written, longest first: those whose name says so and that are no flag."""
    found = {
        value
        for environment in environments
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and len(value) >= 6 and not value.isdigit()
    }
    return tuple(sorted(found, key=len, reverse=True))


def mask(text: str, secrets: tuple[str, ...]) -> str:
    """The text with every secret replaced."""
    for secret in secrets:
        text = text.replace(secret, "****")
    return text


class Output:
    """Reads one pipe in a thread until its end; lines end at a line feed or a carriage return."""

    def __init__(
        self, handle: int, path: Path, secrets: tuple[str, ...], on_line: Callable[[str], None]
    ) -> None:
        self._handle, self._path, self._secrets, self._on_line = handle, path, secrets, on_line
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._recent: deque[str] = deque(maxlen=16)
        self._pending = b""
        self._in_bar = False
        self.progress_at = time.monotonic()
        self.write_error = ""
        self._thread = threading.Thread(target=self._follow, name="trtgate-output", daemon=True)
        self._thread.start()

    def tail(self) -> list[str]:
        """The last lines."""
        return list(self._tail)

    def join(self, timeout_s: float) -> None:
        """Wait until the pipe has ended; a stranger that holds it open is not waited for longer."""
        self._thread.join(timeout_s)

    def touch(self) -> None:
        """Count something else as progress."""
        self.progress_at = time.monotonic()

    def _follow(self) -> None:
        with self._path.open("ab", buffering=0) as log, os.fdopen(self._handle, "rb", buffering=0) as pipe:
            try:
                while data := pipe.read(65_536):
                    self._take(data, log)
                if self._pending:
                    self._take(b"\n", log)
            finally:  # a full pipe would stop the runtime, so that it is read even after an error here
                while pipe.read(65_536):
                    pass

    def _write(self, log: FileIO, text: str) -> None:
        try:
            log.write(text.encode())
        except OSError as error:  # a full disk must not stop the runtime; the loss is told
            self.write_error = error.strerror or str(error)

    def _take(self, data: bytes, log: FileIO) -> None:
        *lines, rest = re.split(rb"(?<=[\r\n])", self._pending + data)
        self._pending = rest
        if len(rest) > _LONGEST:
            lines, self._pending = [*lines, rest], b""
        for raw in lines:
            text = mask(raw.decode("utf-8", errors="replace"), self._secrets)
            self._write(log, text)
            line = text.strip()
            if line:
                self._tail.append(line)
                self._note(line)
        self._in_bar = lines[-1].endswith(b"\r") if lines else self._in_bar
        if self._in_bar and rest.strip():  # a bar ends its line only when it moves on
            self._note(mask(rest.decode("utf-8", errors="replace"), self._secrets).strip())

    def _note(self, line: str) -> None:
        """A line is progress unless the same was said a moment ago with another time in front."""
        bare = _BRACKETS.sub("", line)
        if bare not in self._recent and not _ACCESS.search(line):
            self._recent.append(bare)
            self.touch()
        self._on_line(line)
