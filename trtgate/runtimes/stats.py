"""Reads a server's iteration statistics from one thread: every row to a file, every row as a step."""

import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import requests

from trtgate.plans.config import RuntimeConfig
from trtgate.runtimes.base import Grids, Row, Runtime, Step
from trtgate.runtimes.ready import new_session

BUFFER_ROWS = 1_000  # what `trtllm-serve` keeps between two reads
_TIMEOUT_S = 10.0


class Source(Protocol):
    """What a poller needs of a server."""

    url: str
    log_path: Path | None
    kv_tokens: int | None

    def alive(self) -> bool:
        """Whether it still runs."""


class Poller:
    """The only reader of a server's statistics, since each read empties them.

    Rows are appended to `path` as JSON lines exactly as they came; `warnings` says what was lost and why.
    """

    def __init__(
        self,
        server: Source,
        runtime: Runtime,
        grids: Grids,
        config: RuntimeConfig,
        path: Path,
        *,
        interval_s: float = 0.2,
    ) -> None:
        self._server, self._runtime, self._grids, self._config = server, runtime, grids, config
        self._path, self._interval_s = path, interval_s
        self._session = new_session()
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._steps: list[Step] = []
        self._places: dict[int, int] = {}
        self._lines: list[Row] = []
        self._tables = (0, 0)
        self._warnings: dict[str, None] = {}
        self._last_iteration: int | None = None
        self._log_offset = 0
        self._failed_reads = 0
        self._came_at = 0.0
        self.missing_iterations = 0
        self._thread = threading.Thread(target=self._poll, name="trtgate-statistics", daemon=True)

    def __enter__(self) -> Self:
        """Start reading; what came before is read and left out."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._server.log_path is not None and self._server.log_path.exists():
            self._log_offset = self._server.log_path.stat().st_size
        self._read()
        self._steps.clear()
        self._places.clear()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop reading."""
        self._done.set()
        self._thread.join(_TIMEOUT_S)
        self._session.close()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What happened to the rows that did not come, each sentence once."""
        return tuple(self._warnings)

    def mark(self) -> int:
        """A place to read from later with `steps_since`."""
        with self._lock:
            return len(self._steps)

    def steps_since(self, mark: int = 0) -> list[Step]:
        """The steps that came after a mark, in order."""
        with self._lock:
            return self._steps[mark:]

    def drain(self, *, traffic: bool = True, timeout_s: float = 30.0) -> list[Step]:
        """Read until two reads in a row bring nothing; `traffic` says that rows must have come at all.

        Returns every step so far. A server that died ends it at once.
        """
        limit, quiet = time.monotonic() + timeout_s, 0
        self._came_at = time.monotonic()
        while quiet < 2 or time.monotonic() < self._came_at + self._runtime.settle_s:
            if time.monotonic() > limit or not self._server.alive():
                break
            quiet = 0 if self._read() else quiet + 1
            if quiet:
                self._done.wait(0.05)
        if traffic and self._runtime.statistics == "log" and self._server.log_path is None:
            self._warn("the steps of this runtime stand in its log, which cannot be read from here")
        elif traffic and not self._steps:
            self._warn(f"no statistics came although tokens flowed: {self._runtime.statistics_hint}")
        return self.steps_since()

    def _poll(self) -> None:
        while not self._done.wait(self._interval_s):
            if not self._server.alive():
                return
            self._read()

    def _read(self) -> int:
        """Take what is there; returns the number of new rows."""
        with self._lock:
            by_endpoint = self._runtime.statistics == "endpoint"
            rows = self._endpoint_rows() if by_endpoint else self._log_rows()
            lines = self._log_rows() if by_endpoint else []
            if rows or lines:
                self._came_at = time.monotonic()
                with self._path.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in (*rows, *lines))
            for row in rows:
                self._take(row)
            self._lines += lines
            self._lines = [line for line in self._lines[-BUFFER_ROWS:] if not self._refine(line)]
            return len(rows)

    def _take(self, row: Row) -> None:
        if "graph_table" in row:
            self._confirm(row)
        for found in self._runtime.steps([row], self._grids, self._config):
            step = self._with_cache(found, row)
            self._places[step.iteration] = len(self._steps)
            self._steps.append(step)

    def _with_cache(self, step: Step, row: Row) -> Step:
        """A step with the cache's capacity from the start-up log, where its row gives only a percentage."""
        total, percent = self._server.kv_tokens, row.get("kv")
        if step.kv_tokens is not None or total is None:
            return step
        used = None if percent is None else round(total * percent / 100)
        return replace(step, kv_tokens=total, kv_used_tokens=used)

    def _confirm(self, table: Row) -> None:
        """Join a table of counts with the steps since the table before the last; lines of two processes mix."""
        for place in range(self._tables[0], len(self._steps)):
            if self._steps[place].predicted:
                self._steps[place] = self._runtime.refine(self._steps[place], table) or self._steps[place]
        self._tables = (self._tables[1], len(self._steps))

    def _refine(self, line: Row) -> bool:
        """Join a line of the log with its step; old versions number the two one apart."""
        for number in (line["iter"], line["iter"] + 1, line["iter"] - 1):
            place = self._places.get(number)
            better = None if place is None else self._runtime.refine(self._steps[place], line)
            if place is not None and better is not None:
                self._steps[place] = better
                return True
        return False

    def _endpoint_rows(self) -> list[Row]:
        try:
            answer = self._session.get(f"{self._server.url}/metrics", timeout=_TIMEOUT_S)
            data = answer.json() if answer.ok else None
        except (requests.RequestException, ValueError):
            data = None
        if not isinstance(data, list):
            self._failed_reads += 1
            if self._failed_reads >= 10 and self._server.alive():
                self._warn("`/metrics` gave no list of iterations ten times in a row")
            return []
        self._failed_reads = 0
        rows = [row for row in data if isinstance(row, dict)]
        self._follow(rows)
        return rows

    def _follow(self, rows: list[Row]) -> None:
        """Count iterations that are missing between rows; a full buffer has dropped the oldest."""
        for row in rows:
            number = row.get("iter")
            if not isinstance(number, int):
                continue
            if self._last_iteration is not None and number > self._last_iteration + 1:
                self.missing_iterations += number - self._last_iteration - 1
                full = len(rows) >= BUFFER_ROWS
                self._warn(
                    f"rows were lost: more than {BUFFER_ROWS} iterations passed between two reads"
                    if full
                    else "iterations are missing between rows: another reader may empty `/metrics`"
                )
            self._last_iteration = number

    def _log_rows(self) -> list[Row]:
        path = self._server.log_path
        if path is None or not path.exists():
            return []
        with path.open("rb") as log:
            log.seek(self._log_offset)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._log_offset += len(whole)
        return self._runtime.rows(whole.decode("utf-8", errors="replace").splitlines())

    def _warn(self, text: str) -> None:
        self._warnings[text] = None
