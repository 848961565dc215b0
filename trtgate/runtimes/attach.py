"""An endpoint that is already running elsewhere, with what needs no restart."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from trtgate.errors import RuntimeFailedError, UsageError
from trtgate.runtimes.base import Grids
from trtgate.runtimes.ready import PROBE_TIMEOUT_S, describe, new_session, probe

TOKEN_TIMEOUT_S = 30.0


class Attached:
    """A running server that was not started here: its start is unknown and it is never ended."""

    def __init__(self, url: str, model: str) -> None:
        self.url = url.rstrip("/")
        self.log_path: Path | None = None
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
        self.captured = _reported(self.info)
        self.kv_tokens: int | None = None

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
        """None: its log cannot be seen from here."""
        return []


def attach(url: str, *, model: str = "") -> Attached:
    """Take a running endpoint; `model` empty takes the first it lists. Refuses one that gives no token."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise UsageError(f"`{url}` is no address", "as in `http://127.0.0.1:8000`")
    return Attached(url, model)


def _reported(info: dict[str, Any]) -> Grids:
    """The captured grids where `/server_info` names them; the reference runtime does."""

    def sizes(kind: str) -> tuple[int, ...]:
        group = info.get(kind)
        listed = group.get("captured") if isinstance(group, dict) else None
        return tuple(sorted(size for size in listed or () if isinstance(size, int)))

    return Grids(sizes("decode"), sizes("tokens"))
