"""Starts a runtime, hands it over once it serves, and ends all of it, whatever happens in between."""

import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from trtgate.errors import UsageError
from trtgate.runtimes.attach import Attached, attach
from trtgate.runtimes.base import Launch, PortTakenError, Runtime
from trtgate.runtimes.interrupts import exits_on_signals
from trtgate.runtimes.pidfile import clean_leftovers
from trtgate.runtimes.ready import address, listener, process_name
from trtgate.runtimes.server import Event, OnEvent, Server

__all__ = ["Attached", "Event", "OnEvent", "Server", "attach", "free_port", "serve"]


def free_port(host: str) -> int:
    """A TCP port of `host` that nobody listens on now."""
    with socket.socket() as listening:
        listening.bind((address(host), 0))
        return int(listening.getsockname()[1])


@contextmanager
def serve(
    runtime: Runtime,
    launch: Launch,
    *,
    log_path: Path,
    env: Mapping[str, str],
    progress_deadline_s: float,
    stop_deadline_s: float,
    on_event: OnEvent | None = None,
) -> Iterator[Server]:
    """Start a runtime, hand it over once it serves, and end all of it afterwards.

    Port 0 takes a free one, and another should it be taken meanwhile. Refuses (`UsageError`) a taken port, a
    missing executable or model folder before anything is started; later failures are `RuntimeFailedError`.
    """
    clean_leftovers()
    require_model(launch.model)
    require_executable(runtime.command(launch)[0], runtime.kind)
    if launch.port:
        require_free_port(launch.host, launch.port)

    def running() -> "_Running":
        chosen = replace(launch, port=launch.port or free_port(launch.host))
        server = Server(runtime, chosen, log_path, env, on_event)
        return _Running(server, progress_deadline_s, stop_deadline_s)

    with exits_on_signals(), ExitStack() as stack:
        try:
            server = stack.enter_context(running())
        except PortTakenError:
            if launch.port:
                raise
            server = stack.enter_context(running())
        yield server


class _Running:
    """A server between its start and its end; an end that leaves something is an error of its own."""

    def __init__(self, server: Server, progress_deadline_s: float, stop_deadline_s: float) -> None:
        self._server = server
        self._progress_deadline_s, self._stop_deadline_s = progress_deadline_s, stop_deadline_s

    def __enter__(self) -> Server:
        try:
            self._server.start()
            self._server.wait_ready(self._progress_deadline_s)
        except BaseException:
            self._server.stop(self._stop_deadline_s)
            raise
        return self._server

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        left = self._server.stop(self._stop_deadline_s)
        if kind is None:
            self._server.require_free(left, self._stop_deadline_s)


def require_model(model: str) -> None:
    """Refuse a model given as a path that is no folder with a `config.json`."""
    if not model.startswith((".", "/", "~")):
        return
    folder = Path(model).expanduser()
    if not folder.is_dir():
        raise UsageError(f"the model `{model}` is no folder", "check the path, or give the name of a hub")
    if not (folder / "config.json").exists():
        raise UsageError(f"no `config.json` in `{model}`", "give the folder that holds the model's files")


def require_executable(name: str, kind: str) -> None:
    """Refuse an executable that is not on `PATH`."""
    if shutil.which(name) is None:
        raise UsageError(
            f"`{name}` is not on `PATH`", f"install the runtime `{kind}` or activate its environment"
        )


def require_free_port(host: str, port: int) -> None:
    """Refuse a port that somebody listens on, and say who."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((address(host), port))
        except OSError as error:
            raise UsageError(
                f"port `{port}` of `{host}` is taken by {process_name(listener(port))}",
                "end that process, or use port 0 for any free one",
            ) from error
