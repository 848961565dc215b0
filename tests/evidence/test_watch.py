from typing import cast

import pytest

from trtgate.errors import RuntimeFailedError
from trtgate.evidence import watch
from trtgate.evidence.watch import Watch
from trtgate.runtimes.process import Server


class Serving:
    """A server that lives and whose `/health` answers as scripted."""

    url, log_path = "http://127.0.0.1:9", None

    def raise_if_dead(self) -> None:
        """It is not."""


def watching(monkeypatch: pytest.MonkeyPatch, *seen: str) -> Watch:
    looks = iter(seen)
    monkeypatch.setattr(watch, "INTERVAL_S", 0.0)
    found = Watch(cast("Server", Serving()))
    monkeypatch.setattr(found, "_look", lambda: next(looks))
    return found


def test_one_missed_look_after_the_load_is_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    watching(monkeypatch, "`/health` answers 503", "").require_well()


def test_a_server_that_misses_every_look_has_stopped_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeFailedError, match="stopped serving under load"):
        watching(monkeypatch, *["`/health` answers 503"] * watch.STRIKES).require_well()
