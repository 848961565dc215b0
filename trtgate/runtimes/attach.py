"""An endpoint that is already running elsewhere, with what needs no restart."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from trtgate.errors import RuntimeFailedError, UsageError
from trtgate.record import read_text
from trtgate.runtimes.base import Grids, Runtime
from trtgate.runtimes.output import TAIL_LINES
from trtgate.runtimes.ready import PROBE_TIMEOUT_S, describe, new_session, probe

TOKEN_TIMEOUT_S = 30.0


class Attached:
    """A running server that was not started here: its start is unknown and it is never ended."""

    def __init__(self, url: str, model: str, runtime: Runtime | None, log_path: Path | None) -> None:
        self.url = url.rstrip("/")
        self.log_path = log_path
        self.port = urlsplit(self.url).port or 80
        self.pid = 0
        self.phases: dict[str, float] = {}
        self.memory_marks: dict[str, int] = {}
        self._session = new_session()
        found = probe(self._session, self.url, model, TOKEN_TIMEOUT_S)
        if found.stage != "ready":
            message = f"`{self.url}` does not serve: {found.detail or found.stage}"
            raise RuntimeFailedError(message, "check address and model name")
        self.model = found.model
        self.version: str | None
        self.info: dict[str, Any]
        self.version, self.info = describe(self._session, self.url)
        lines = [] if log_path is None else read_text(log_path).splitlines()
        from_log = runtime.captured(lines) if runtime is not None else Grids()
        self.captured = from_log if from_log != Grids() else _reported(self.info)
        self.kv_tokens = runtime.kv_tokens(lines) if runtime is not None else None

    def alive(self) -> bool:
        """Whether `/health` answers 200 now."""
        try:
            return self._session.get(f"{self.url}/health", timeout=PROBE_TIMEOUT_S).status_code == 200
        except requests.RequestException:
            return False

    def raise_if_dead(self) -> None:
        """`RuntimeFailedError` where it no longer answers."""
        if not self.alive():
            raise RuntimeFailedError(f"`{self.url}` no longer answers", "see its log where it runs")

    def memory_bytes(self) -> int:
        """0: its memory cannot be seen from here."""
        return 0

    def tail(self) -> list[str]:
        """The last lines of its log where that can be read from here."""
        return [] if self.log_path is None else read_text(self.log_path).splitlines()[-TAIL_LINES:]


def attach(
    url: str, *, model: str = "", runtime: Runtime | None = None, log_path: Path | None = None
) -> Attached:
    """Take a running endpoint; `model` empty takes the first it lists. Refuses one that gives no token.

    What was captured comes from its log, where `log_path` can be read from here, or from what the server reports.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise UsageError(f"`{url}` is no address", "as in `http://127.0.0.1:8000`")
    return Attached(url, model, runtime, log_path)


def _reported(info: dict[str, Any]) -> Grids:
    """The captured grids where `/server_info` names them; the reference runtime does."""

    def sizes(kind: str) -> tuple[int, ...]:
        group = info.get(kind)
        listed = group.get("captured") if isinstance(group, dict) else None
        return tuple(sorted(size for size in listed or () if isinstance(size, int)))

    return Grids(sizes("decode"), sizes("tokens"))
