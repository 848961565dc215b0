"""Endpoints that run elsewhere."""

import pytest

from tests.runtimes.fakes import START_LOG, serving
from trtgate.errors import RuntimeFailedError, UsageError
from trtgate.runtimes import runtime_for
from trtgate.runtimes.base import Grids
from trtgate.runtimes.process import attach


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))


def test_attached_server_is_described_and_not_ended(tmp_path):
    with serving({"server_info": {"decode": {"captured": [4, 1]}}}, tmp_path) as server:
        attached = attach(server.url)
        assert (attached.model, attached.version, attached.alive()) == ("tiny", "1.2.0", True)
        assert attached.captured == Grids((1, 4), ())
        attached.raise_if_dead()
        assert server.alive()


def test_log_of_an_attached_server_tells_what_it_captured(tmp_path):
    log = tmp_path / "its.log"
    log.write_text("\n".join(START_LOG))
    with serving({}, tmp_path) as server:
        attached = attach(server.url, runtime=runtime_for("tensorrt-llm"), log_path=log)
    assert attached.captured == Grids((1, 4), (16, 32))
    assert attached.tail()[-1] == START_LOG[-1]


def test_server_that_went_away_is_noticed(tmp_path):
    with serving({}, tmp_path) as server:
        attached = attach(server.url)
    with pytest.raises(RuntimeFailedError, match="no longer answers"):
        attached.raise_if_dead()


def test_endpoint_with_another_model_is_refused(tmp_path):
    with (
        serving({}, tmp_path) as server,
        pytest.raises(RuntimeFailedError, match="lists `tiny`, not `other`"),
    ):
        attach(server.url, model="other")


def test_address_without_a_scheme_is_refused():
    with pytest.raises(UsageError, match="`localhost:80` is no address"):
        attach("localhost:80")
