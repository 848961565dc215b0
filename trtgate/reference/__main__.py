"""`python -m trtgate.reference [serve] MODEL ...`: `trtllm-serve`'s flags, one process each for HTTP and engine."""

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from .faults import FaultError, parse_faults
from .settings import LEVELS, Settings, SettingsError, apply_options, read_options
from .shapes import read_shape

SAME_NAMES = (
    "model",
    "host",
    "port",
    "max_batch_size",
    "max_num_tokens",
    "max_seq_len",
    "kv_fraction",
    "log_level",
    "seed",
    "threads",
)


def main(arguments: list[str] | None = None) -> int:
    """Serve until told to stop; returns the exit status."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    given = _parser().parse_args(_without_serve(sys.argv[1:] if arguments is None else arguments))
    try:
        settings = _settings(given)
        read_shape(settings.model)
        listener = _bind(settings.host, settings.port)
    except (SettingsError, FaultError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    ours, theirs = socket.socketpair()
    worker = os.fork()
    if not worker:
        listener.close()
        ours.close()
        return _work(settings, theirs)
    theirs.close()
    from .server import serve  # the engine's process has no use for it

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(serve(settings, listener, ours, given.die_with_parent))
    finally:
        ours.close()
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)


def _work(settings: Settings, line: socket.socket) -> int:
    """Be the engine's process; it leaves signals to the HTTP process, whose end ends it too."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    from .worker import run_worker  # only this process pays for torch

    return run_worker(settings, line)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "trtgate.reference", description="A small decoder served as by `trtllm-serve`."
    )
    parser.add_argument("model", metavar="MODEL", help="tiny, 1b, 8b or a folder with a Llama `config.json`")
    parser.add_argument("--host", default="localhost")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--max_batch_size", type=int, default=2048)
    parser.add_argument("--max_num_tokens", type=int, default=8192)
    parser.add_argument("--max_seq_len", type=int, default=0)
    parser.add_argument(
        "--config", "--extra_llm_api_options", type=Path, help="YAML file; it wins over flags"
    )
    parser.add_argument("--enable_chunked_prefill", action="store_true")
    fraction = ("--kv_cache_free_gpu_memory_fraction", "--free_gpu_memory_fraction")
    parser.add_argument(*fraction, dest="kv_fraction", type=float, default=0.9)
    parser.add_argument("--backend", choices=["pytorch"], default="pytorch")
    parser.add_argument("--log_level", choices=sorted(LEVELS), default="info")
    parser.add_argument(
        "--fault", action="append", default=[], metavar="SPEC", help="fail on purpose; repeatable"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random weights")
    parser.add_argument("--threads", type=int, default=1, help="of torch on a CPU")
    parser.add_argument(
        "--die-with-parent",
        type=int,
        nargs="?",
        default=0,
        const=os.getppid(),
        metavar="PID",
        help="end when the process above, with this PID where given, has ended",
    )
    return parser


def _without_serve(arguments: list[str]) -> list[str]:
    return arguments[1:] if arguments[:1] == ["serve"] else arguments


def _settings(given: argparse.Namespace) -> Settings:
    flags: dict[str, Any] = {
        "chunked_prefill": given.enable_chunked_prefill,
        "faults": parse_faults(given.fault),
        **{name: getattr(given, name) for name in SAME_NAMES},
    }
    return apply_options(Settings(**flags), read_options(given.config) if given.config else {})


def _bind(host: str, port: int) -> socket.socket:
    """Take the port without listening on it: clients are refused until the engine is ready."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise SettingsError(f"Failed to bind socket to {host}:{port}: {error.strerror}") from error
    return listener


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _leave(*_: object) -> NoReturn:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
