"""Watches a server while load runs on it, so that a dead engine ends the run at once instead of by time-outs."""

import threading
from types import TracebackType
from typing import Self

import requests

from trtgate.errors import RuntimeFailedError
from trtgate.runtimes.process import Server
from trtgate.runtimes.ready import new_session

INTERVAL_S = 1.0
EXIT_LOOKS = 10
STRIKES = 3  # a busy front end may miss one answer; a dead engine misses all


class Watch:
    """Asks `/health` once a second from a thread of its own; `failed` says what was seen, empty while all is well."""

    def __init__(self, server: Server) -> None:
        self._server, self._session = server, new_session()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="trtgate-watch", daemon=True)
        self.failed = ""

    def __enter__(self) -> Self:
        """Start watching."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop watching."""
        self._done.set()
        self._thread.join(2 * INTERVAL_S)
        self._session.close()

    def stopped(self) -> bool:
        """Whether going on is pointless."""
        return bool(self.failed)

    def require_well(self) -> None:
        """Look again; raise what the server died of, or what was seen of it each time."""
        seen = self.failed
        for _ in range(0 if seen else STRIKES):
            seen = self._look()
            if not seen:
                break
            self._server.raise_if_dead()
            self._done.wait(INTERVAL_S)
        if not seen:
            self._server.raise_if_dead()
            return
        for _ in range(EXIT_LOOKS):  # a process that is just ending says more about its death
            self._server.raise_if_dead()
            self._done.wait(INTERVAL_S / EXIT_LOOKS)
        raise RuntimeFailedError(
            f"the runtime stopped serving under load: {seen}", f"read its log `{self._server.log_path}`"
        )

    def _look_on(self) -> None:
        strikes = 0
        while not self._done.wait(INTERVAL_S):
            if not self._server.alive():
                self.failed = "its process ended"
                return
            seen = self._look()
            strikes = strikes + 1 if seen else 0
            if strikes >= STRIKES:
                self.failed = seen
                return

    def _look(self) -> str:
        try:
            status = self._session.get(f"{self._server.url}/health", timeout=5.0).status_code
        except requests.Timeout:
            return ""  # slow is not dead; the load's own time-outs judge that
        except requests.RequestException as error:
            return f"`/health` is unreachable ({type(error).__name__})"
        return "" if status == requests.codes.ok else f"`/health` answers {status}"
