"""Starting, watching and ending a runtime: what can go wrong, against a scripted one."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import requests

from tests.runtimes.fake_runtime import listen
from tests.runtimes.fakes import START_LOG, Fake, launch_of, serving
from trtgate.errors import RuntimeFailedError, UsageError
from trtgate.runtimes.base import Grids, Phase
from trtgate.runtimes.output import clean_environment
from trtgate.runtimes.pidfile import clean_leftovers, folder
from trtgate.runtimes.process import free_port, serve
from trtgate.runtimes.tree import Member, is_alive, member

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))


def gone(pid: int, within_s: float = 10.0) -> bool:
    limit = time.monotonic() + within_s
    while member(pid) is not None and time.monotonic() < limit:
        time.sleep(0.01)
    return member(pid) is None


def test_ready_server_says_what_it_captured_and_when(tmp_path):
    with serving({"lines": list(START_LOG)}, tmp_path) as server:
        assert server.captured == Grids((1, 4), (16, 32))
        assert list(server.phases) == ["process", "capture", "ready"]
        assert (server.model, server.version, server.info) == ("tiny", "1.2.0", {"max_batch_size": 8})
        assert server.memory_bytes() > 0


def test_nothing_is_left_after_a_stop(tmp_path):
    with serving({}, tmp_path) as server:
        pid, port = server.pid, server.port
    assert member(pid) is None
    assert not list(folder().iterdir())
    with closing(socket.create_server(("127.0.0.1", port))):
        pass


def test_taken_port_is_refused_before_the_start_and_its_holder_named(tmp_path):
    with closing(socket.create_server(("127.0.0.1", 0))) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(UsageError, match=rf"port `{port}` .* \(pid {os.getpid()}\)"):
            serving({}, tmp_path, port=port).__enter__()
    assert not (tmp_path / "server.log").exists()


def test_answer_of_a_stranger_on_our_port_is_refused(tmp_path):
    port, strangers = free_port("127.0.0.1"), []

    def come_between(event):
        if event.kind == "phase" and not strangers:
            strangers.append(listen({}, "127.0.0.1", port))

    with pytest.raises(
        UsageError, match=rf"port `{port}` is served by .* \(pid {os.getpid()}\), which was not"
    ):
        serving({"hang": True}, tmp_path, port=port, on_event=come_between).__enter__()
    strangers[0].shutdown()
    strangers[0].server_close()


def test_missing_executable_is_refused(tmp_path):
    class Missing(Fake):
        def command(self, launch):
            del launch
            return ["no-such-runtime"]

    limits = {"progress_deadline_s": 1.0, "stop_deadline_s": 1.0}
    with pytest.raises(UsageError, match="`no-such-runtime` is not on `PATH`"):
        serve(Missing({}), launch_of(tmp_path), log_path=tmp_path / "log", env={}, **limits).__enter__()


def test_model_folder_without_a_configuration_is_refused(tmp_path):
    limits = {"progress_deadline_s": 1.0, "stop_deadline_s": 1.0}
    launch = launch_of(tmp_path, model=str(tmp_path))
    with pytest.raises(UsageError, match=r"no `config\.json` in"):
        serve(Fake({}), launch, log_path=tmp_path / "log", env={}, **limits).__enter__()


def test_death_at_start_is_named_by_its_cause_and_phase(tmp_path):
    lines = [
        *START_LOG[:2],
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "Exception ignored in",
    ]
    with pytest.raises(RuntimeFailedError) as caught:
        serving({"lines": lines, "exit": 1}, tmp_path).__enter__()
    assert (
        "ran out of memory while capturing decode bucket 4: `torch.OutOfMemoryError" in caught.value.message
    )
    assert caught.value.exit_code == 10


def test_wrong_model_is_refused_although_it_is_healthy(tmp_path):
    with pytest.raises(RuntimeFailedError, match="wrong model: `/v1/models` lists `other`, not `tiny`"):
        serving({"models": ["other"]}, tmp_path).__enter__()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ({"completion": "hang"}, "`/health` answers 200 but no token came in 1 s"),
        ({"completion": "empty"}, "answers 200 without a token"),
        ({"completion": "busy"}, "answers 503 without a token"),
        ({"models": []}, "`/v1/models` lists nothing"),
        (
            {"lines": ["loading"], "hang": True},
            "stopped making progress while starting its process for 1 s",
        ),
        ({"health": 503}, "stopped making progress"),
    ],
)
def test_server_that_never_gives_a_token_is_not_ready(tmp_path, script, said):
    with pytest.raises(RuntimeFailedError, match=re.escape(said)):
        serving(script, tmp_path, progress_deadline_s=1.0).__enter__()


@pytest.mark.parametrize("bare", [False, True], ids=["with environment", "without environment"])
def test_stop_ends_a_grandchild_that_left_session_and_parent(tmp_path, bare):
    with serving({"daemon": str(tmp_path / "pid"), "daemon_without_mark": bare}, tmp_path):
        pid = int((tmp_path / "pid").read_text())
        assert member(pid) is not None
    assert member(pid) is None


def test_stop_kills_what_ignores_the_polite_signal(tmp_path):
    with serving({"ignore_term": True}, tmp_path, stop_deadline_s=0.2) as server:
        pid = server.pid
    assert member(pid) is None


def test_other_limits_than_asked_for_stop_the_start(tmp_path):
    with pytest.raises(RuntimeFailedError, match="runs with `max_batch_size` 4, asked for was 8"):
        serving({"server_info": {"max_batch_size": 4}}, tmp_path).__enter__()


def test_capture_after_the_start_is_noted(tmp_path):
    with serving({"completion": "late", "late": START_LOG[1]}, tmp_path) as server:
        requests.post(f"{server.url}/v1/completions", json={}, timeout=10)
        while not server.late_captures:
            pass
        assert server.warnings == ("graph captured after the start: capturing decode bucket 4",)
        assert server.late_captures == [Phase("capture", "decode", 4)]


def test_last_line_of_every_rank_is_told_after_a_hang(tmp_path):
    lines = [
        "[01/20/2026-09:10:41] [TRT-LLM] [RANK 0] [I] waits",
        "[01/20/2026-09:10:41] [TRT-LLM] [RANK 1] [I] is lost",
    ]
    with pytest.raises(RuntimeFailedError, match="rank 0: waits; rank 1: is lost"):
        serving({"lines": lines, "hang": True}, tmp_path, progress_deadline_s=1.0).__enter__()


def test_variable_that_is_not_set_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"`\$\{NO_SUCH\}`, wanted by `HF_TOKEN`"):
        serving({}, tmp_path, env={"HF_TOKEN": "${NO_SUCH}"}).__enter__()


def test_environment_holds_what_is_allowed_and_what_the_profile_adds():
    own = {"PATH": "/bin", "EDITOR": "vi", "CUDA_VISIBLE_DEVICES": "0", "SECRET": "hidden"}
    made = clean_environment(own, {"MINE": "a ${SECRET}"})
    assert made == {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0", "MINE": "a hidden"}


def test_runtime_goes_on_although_the_listener_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def listen(event):
        raise ValueError(event.text)

    lines = ["x" * 100] * 5_000
    with serving(
        {"lines": lines}, tmp_path, on_event=lambda event: event.kind == "line" and listen(event)
    ) as server:
        assert server.alive()


def test_program_that_cannot_run_is_refused(tmp_path):
    class Broken(Fake):
        def command(self, launch):
            path = launch.folder / "broken"
            path.write_bytes(b"no program")
            path.chmod(0o755)
            return [str(path)]

    limits = {"progress_deadline_s": 1.0, "stop_deadline_s": 1.0}
    with pytest.raises(UsageError, match="cannot be started: Exec format error"):
        serve(Broken({}), launch_of(tmp_path), log_path=tmp_path / "log", env={}, **limits).__enter__()
    assert not list(folder().iterdir())


def test_secrets_reach_neither_log_nor_error(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_very_secret")
    with pytest.raises(RuntimeFailedError) as caught:
        serving({"lines": ["ValueError: bad token hf_very_secret"], "exit": 1}, tmp_path).__enter__()
    assert "hf_very_secret" not in caught.value.message + (tmp_path / "server.log").read_text()
    assert "****" in caught.value.message


def test_death_while_serving_is_named(tmp_path):
    with serving({"lines": ["all is well"]}, tmp_path) as server:
        os.kill(server.pid, signal.SIGKILL)
        while server.alive():
            pass
        with pytest.raises(RuntimeFailedError, match="killed while serving"):
            server.raise_if_dead()


STARTER = """
import sys, pathlib
from tests.runtimes.fakes import serving
folder = pathlib.Path(sys.argv[1])
script = {"lines": ["up"], "hang": sys.argv[2] == "start", "daemon": str(folder / "pid")}
shout = lambda event: event.kind == "line" and print("up", flush=True)
with serving(script, folder, on_event=shout):
    print("ready", flush=True)
    sys.stdin.read()
"""


def started(tmp_path: Path, stage: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", STARTER, str(tmp_path), stage]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
    )
    assert process.stdout is not None
    while process.stdout.readline().strip() != {"start": "up", "serve": "ready"}[stage]:
        pass
    return process


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("stage", ["start", "serve"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupt_leaves_nothing(tmp_path, stage, number):
    with started(tmp_path, stage) as process:
        process.send_signal(number)
        assert process.wait(20) != 0
    assert gone(int((tmp_path / "pid").read_text()), 0.0)
    assert not list(folder().iterdir())


@pytest.mark.parametrize("stage", ["start", "serve"])
def test_next_start_ends_what_a_killed_trtgate_left(tmp_path, stage):
    with started(tmp_path, stage) as process:
        process.kill()
        process.wait(20)
    pid = int((tmp_path / "pid").read_text())
    assert member(pid) is not None
    assert clean_leftovers() >= 1
    assert member(pid) is None
    assert not list(folder().iterdir())


def test_damaged_pid_file_is_no_obstacle():
    (folder() / "abc.json").write_text('{"boot": "x"')
    assert clean_leftovers() == 0
    assert not list(folder().iterdir())


def test_file_of_another_container_is_left_alone():
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    path = folder() / "abc.json"
    path.write_text(json.dumps({"boot": boot, "namespace": "pid:[1]", "owner": [1, 1], "members": []}))
    assert clean_leftovers() == 0
    assert path.exists()


def test_process_with_a_reused_number_is_spared():
    own = member(os.getpid())
    assert not is_alive(Member(own.pid, own.start_ticks - 1))


def test_free_port_can_be_bound():
    with closing(socket.create_server(("127.0.0.1", free_port("127.0.0.1")))):
        pass
