"""One runtime that was started here: its process tree, its log, its stages, its end."""

import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from trtgate.errors import InvalidMeasurementError, RuntimeFailedError, TrtgateError, UsageError
from trtgate.runtimes.base import Failure, Grids, Launch, Phase, Runtime
from trtgate.runtimes.devices import used_bytes, wait_until_free
from trtgate.runtimes.interrupts import held_back
from trtgate.runtimes.output import Output, clean_environment, secrets_of
from trtgate.runtimes.pidfile import PidFile
from trtgate.runtimes.ready import Probe, address, describe, listener, new_session, probe, process_name
from trtgate.runtimes.tree import MARK, Member, Tree, end, member

TOKEN_TIMEOUT_S = 30.0
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened `at_ms` after a start; handed over by the thread that reads the log."""

    at_ms: float
    kind: Literal["phase", "bucket", "line"]
    text: str
    phase: Phase | None = None


OnEvent = Callable[[Event], None]


class Server:
    """A runtime that was started here; made by `serve`, which also ends it."""

    def __init__(
        self,
        runtime: Runtime,
        launch: Launch,
        log_path: Path,
        env: Mapping[str, str],
        on_event: OnEvent | None,
    ) -> None:
        self._runtime, self._launch, self._on_event = runtime, launch, on_event
        self.log_path: Path | None = log_path
        self.port = launch.port
        self.url = f"http://{address(launch.host)}:{launch.port}"
        self.model = ""
        self.pid = 0
        self.phases: dict[str, float] = {}
        self.memory_marks: dict[str, int] = {}
        self.captured = Grids()
        self.version: str | None = None
        self.info: dict[str, Any] = {}
        self.limits: dict[str, int] = {}
        self.kv_tokens: int | None = None
        self.late_captures: list[Phase] = []
        self._run = uuid.uuid4().hex
        wanted = {**runtime.environment(launch), **env}
        self._env = {**clean_environment(os.environ, wanted), MARK: self._run}
        self._secrets = secrets_of(os.environ, self._env)
        self._pidfile = PidFile(self._run)
        self._pipe = 0
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._tree: Tree | None = None
        self._root: Member | None = None
        self._output: Output | None = None
        self._watcher: threading.Thread | None = None
        self._phase = Phase("process")
        self._started = time.monotonic()
        self._device_before = used_bytes()

    def start(self) -> None:
        """Start the process; the file that remembers it is written first."""
        assert self.log_path is not None
        command = self._runtime.command(self._launch)
        try:
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
            self.log_path.write_bytes(b"")
        except OSError as error:
            raise TrtgateError(
                f"cannot write `{self.log_path}`: {error.strerror}", "check the folder"
            ) from error
        source, sink = os.pipe()
        self._pipe = os.fstat(source).st_ino
        self._pidfile.write((), self._pipe)
        with held_back():
            self._started = time.monotonic()
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=sink,
                    env=self._env,
                    start_new_session=True,
                )
            except OSError as error:
                os.close(source)
                hint = "check that it is a program of this machine"
                raise UsageError(f"`{command[0]}` cannot be started: {error.strerror}", hint) from error
            finally:
                os.close(sink)
            self.pid = self._process.pid
            self._root = member(self.pid)
            self._tree = Tree(self._root, self._run, self._pipe)
            self._reach(Phase("process"), "process started")
            self._output = Output(source, self.log_path, self._secrets, self._line)
            self._watcher = threading.Thread(target=self._watch, name="trtgate-tree", daemon=True)
            self._watcher.start()

    def wait_ready(self, progress_deadline_s: float) -> None:
        """Return once a token came from our own process; raises the named failure otherwise."""
        assert self._output is not None
        wanted = self._runtime.served_model(self._launch)
        last = Probe("unreachable")
        with new_session() as session:
            while last.stage != "ready":
                self.raise_if_dead()
                last = probe(session, self.url, wanted, min(TOKEN_TIMEOUT_S, progress_deadline_s))
                self._judge(last, time.monotonic() - self._output.progress_at, progress_deadline_s)
                if last.stage != "ready":
                    time.sleep(_LOOK_S)
            self._require_ours()
            self.version, self.info = describe(session, self.url)
        self.model = last.model
        self._reach(Phase("ready"), "ready")
        self._read_log()

    def _read_log(self) -> None:
        """Take from the whole log what was captured and which limits hold; refuse other limits than asked for."""
        assert self.log_path is not None
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        self.captured = self._runtime.captured(lines)
        self.kv_tokens = self._runtime.kv_tokens(lines)
        self.limits = self._runtime.reported(self.info, lines)
        for name, value in self.limits.items():
            asked = getattr(self._launch.config, name)
            if value != asked:
                message = f"the runtime runs with `{name}` {value}, asked for was {asked}"
                raise RuntimeFailedError(
                    message, "another setting overrides it; look at `runtime.args` and `runtime.env`"
                )

    def alive(self) -> bool:
        """Whether the process that was started still runs."""
        return self._process is not None and self._process.poll() is None

    def raise_if_dead(self) -> None:
        """Raise the named failure of a process that has ended."""
        if self.alive() or self._process is None:
            return
        if self._output is not None:
            self._output.join(2.0)
        raise self._runtime.failure(self.tail(), self._process.poll(), self._phase).error()

    def tail(self) -> list[str]:
        """The last lines of the log."""
        return [] if self._output is None else self._output.tail()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What went wrong without ending anything: captures after the start, a log that could not be written."""
        late = tuple(f"graph captured after the start: {found}" for found in self.late_captures)
        lost = self._output.write_error if self._output is not None else ""
        return (*late, f"part of `{self.log_path}` could not be written: {lost}") if lost else late

    def memory_bytes(self) -> int:
        """Device memory taken since the start, all devices together; resident memory where there is none."""
        now = used_bytes()
        if now:
            return max(sum(now) - sum(self._device_before), 0)
        return 0 if self._tree is None else self._tree.memory_bytes()

    def members(self) -> tuple[Member, ...]:
        """Every process of this start that was seen."""
        return () if self._tree is None else self._tree.members()

    def stop(self, deadline_s: float) -> tuple[Member, ...]:
        """End the whole tree; returns what could not be ended. Interrupts are held back meanwhile."""
        with held_back():
            self._stopped.set()
            left = () if self._tree is None else end(self._find, self._root, deadline_s, self.alive)
            if self._output is not None:
                self._output.join(2.0)
            if self._watcher is not None:
                self._watcher.join()
            if not left:
                self._reap()
                self._pidfile.remove()
            return left

    def require_free(self, left: tuple[Member, ...], deadline_s: float) -> None:
        """Refuse to go on while processes or device memory of this start remain."""
        if left:
            pids = ", ".join(str(process.pid) for process in left)
            raise RuntimeFailedError(
                f"processes of the runtime could not be ended: {pids}", "end them by hand"
            )
        over = wait_until_free(self._device_before, deadline_s)
        if over:
            mib = sum(over) >> 20
            message = f"{mib} MiB of device memory did not come back after the runtime ended"
            # every process of this start has ended, so that somebody else may hold it: no verdict on the runtime
            raise InvalidMeasurementError(message, "look at `nvidia-smi` for the process that holds it")

    def _reap(self) -> None:
        if self._process is not None:
            self._process.kill()  # does nothing to one that has ended
            self._process.wait()

    def _find(self) -> tuple[Member, ...]:
        assert self._tree is not None
        self._tree.refresh(deep=True)
        return self._tree.alive()

    def _watch(self) -> None:
        """Keep the tree and its file up to date, since a process can leave group, session and parent."""
        assert self._tree is not None
        try:
            self._pidfile.write(self._tree.members(), self._pipe)
            while not self._stopped.wait(5.0 if "ready" in self.phases else 0.5):  # a look costs milliseconds
                if self._tree.refresh():
                    self._pidfile.write(self._tree.members(), self._pipe)
        except OSError:
            return  # the folder went away; the mark in the environment remains

    def _line(self, line: str) -> None:
        found = self._runtime.phase(line)
        if "ready" in self.phases:
            if found is not None and found.bucket is not None:
                self.late_captures.append(found)
        elif found is not None and found.name != "ready" and found != self._phase:
            self._reach(found, line)
        self._emit("line", line, None)

    def _reach(self, found: Phase, text: str) -> None:
        self._phase = found
        if found.name not in self.phases:
            self.phases[found.name] = (time.monotonic() - self._started) * 1000
            self.memory_marks[found.name] = self.memory_bytes()
            self._emit("phase", text, found)
        if found.bucket is not None:
            self._emit("bucket", text, found)
        if self._output is not None:
            self._output.touch()

    def _emit(self, kind: Literal["phase", "bucket", "line"], text: str, found: Phase | None) -> None:
        if self._on_event is not None:
            self._on_event(Event((time.monotonic() - self._started) * 1000, kind, text, found))

    def _judge(self, found: Probe, quiet_s: float, deadline_s: float) -> None:
        """Raise where waiting longer is pointless."""
        if found.stage == "wrong-model":
            self._require_ours()
            raise RuntimeFailedError(
                f"wrong model: {found.detail}", "another server may answer on this address"
            )
        if found.stage == "ready" or quiet_s < deadline_s or not self.alive():
            return
        if found.stage in {"no-token", "no-model"}:
            message = f"the runtime is not ready after {deadline_s:g} s without progress: {found.detail}"
            raise RuntimeFailedError(message, "a 200 from `/health` is not readiness; see the log")
        failure = self._runtime.failure(self.tail(), None, self._phase)
        raise replace(failure, message=f"{failure.message} for {deadline_s:g} s").error()

    def _require_ours(self) -> None:
        """Refuse an answer that came from a process which was not started here."""
        holder = listener(self.port)
        if not holder or self._tree is None:
            return
        self._tree.refresh(deep=True)
        if holder not in {process.pid for process in self._tree.alive()}:
            self.raise_if_dead()
            message = f"port `{self.port}` is served by {process_name(holder)}, which was not started here"
            raise Failure("port-taken", message, "end it or choose another port").error()
