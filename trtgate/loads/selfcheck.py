"""The client against a server whose answers are known: up to which rate it may be believed on this host."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trtgate.errors import InvalidMeasurementError
from trtgate.loads.base import Answer, Ask, LoadResult, Target
from trtgate.loads.metrics import quantile, samples
from trtgate.loads.oracle import FIRST_NUMBER, Script
from trtgate.loads.run import run_load
from trtgate.record import Record

_STREAMS = (64, 256, 1024, 2048)
_SCRIPT = Script(ttft_s=0.05)
_TOKENS = 16
_STOP_S = 10.0
_PIPE = subprocess.PIPE


class Level(Record):
    """One load of the check: tokens/s while all stream, p99 as sent and as got, how late the client was."""

    tokens_per_s: float
    ttft_sent_ms: float
    ttft_got_ms: float
    itl_sent_ms: float
    itl_got_ms: float
    late_ms: float
    lag_ms: float
    failed: int

    @property
    def error_ms(self) -> float:
        """The larger error of both p99."""
        return max(abs(self.ttft_got_ms - self.ttft_sent_ms), abs(self.itl_got_ms - self.itl_sent_ms))


class Selfcheck(Record):
    """The levels tried, least load first, and the highest rate up to which every error is below the limit."""

    limit_ms: float
    levels: tuple[Level, ...]
    believed_tokens_per_s: float


@dataclass(slots=True)
class Known:
    """A running known-answer server; `log` fills when it stops: for each request, when it came and sent."""

    target: Target
    log: list[NDArray[np.float64]] = field(default_factory=list)


def selfcheck(limit_ms: float = 1.0, streams: Sequence[int] = _STREAMS) -> Selfcheck:
    """Run the client for about two seconds against a known-answer server in a process of its own."""
    results = []
    with known_server(_SCRIPT) as known:
        for count in streams:
            spread_s = _SCRIPT.itl_s / count
            asks = [Ask(place * spread_s, (1, 2, 3), _TOKENS) for place in range(count)]
            results.append(run_load(known.target, asks, timeout_s=5.0, drain_s=5.0))
            if results[-1].instrument.cpu > 0.95:
                break
    levels = tuple(_level(result, known.log) for result in results)
    return Selfcheck(limit_ms=limit_ms, levels=levels, believed_tokens_per_s=believed(levels, limit_ms))


def believed(levels: Sequence[Level], limit_ms: float) -> float:
    """The rate of the last level before the first that errs by more than `limit_ms`, or fails; 0 if none."""
    rate = 0.0
    for level in levels:
        if level.error_ms > limit_ms or level.failed:
            break
        rate = level.tokens_per_s
    return rate


@contextmanager
def known_server(script: Script, *before: str) -> Iterator[Known]:
    """A known-answer server as a child process, ended on leaving; `before` is put before its command."""
    options = [
        f"--{name.replace('_', '-')}={getattr(script, name)}" for name in script.__slots__ if name != "role"
    ]
    command = [*before, sys.executable, "-m", "trtgate.loads.oracle", *options, *["--role"] * script.role]
    # The child finds this very package, installed or not, whatever the folder.
    paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]).rstrip(
        os.pathsep
    )
    environment = os.environ | {"PYTHONPATH": paths}
    with subprocess.Popen(command, stdin=_PIPE, stdout=_PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            port = process.stdout.readline().strip()
            if not port:
                raise InvalidMeasurementError(
                    "the known-answer server did not start", "run the self-check again"
                )
            known = Known(Target(f"http://127.0.0.1:{int(port)}", "oracle"))
            yield known
            known.log.extend(_parse(process.communicate(timeout=_STOP_S)[0]))
        finally:
            process.kill()


def truth_ms(answers: Sequence[Answer], log: Sequence[NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """`ttft_ms` and `itl_ms` as the server sent them, for complete answers, in their order."""
    sent = [
        log[ids[0] - FIRST_NUMBER] for ids in (answer.token_ids for answer in answers if answer.ok) if ids
    ]
    ttft = [one[1] - one[0] for one in sent]
    gaps = [np.diff(one[1:]) for one in sent]
    return {"ttft_ms": np.array(ttft) * 1e3, "itl_ms": np.concatenate(gaps or [np.empty(0)]) * 1e3}


def _level(result: LoadResult, log: Sequence[NDArray[np.float64]]) -> Level:
    sent = truth_ms(result.answers, log)
    got = samples(result)
    done = sum(answer.ok for answer in result.answers)
    if not done:
        raise InvalidMeasurementError(
            "no request of the self-check completed", "is 127.0.0.1 reachable here?"
        )
    return Level(
        tokens_per_s=len(result.answers) / _SCRIPT.itl_s,
        ttft_sent_ms=quantile(sent["ttft_ms"], 0.99),
        ttft_got_ms=quantile(got["ttft_from_send_ms"], 0.99),
        itl_sent_ms=quantile(sent["itl_ms"], 0.99),
        itl_got_ms=quantile(got["itl_ms"], 0.99),
        late_ms=result.instrument.late_p99_ms,
        lag_ms=result.instrument.lag_p99_ms,
        failed=len(result.answers) - done,
    )


def _parse(raw: bytes) -> Iterator[NDArray[np.float64]]:
    values = np.frombuffer(raw[: len(raw) // 8 * 8], dtype=np.float64)
    start = 0
    while start < len(values):
        stop = start + 2 + int(values[start])
        yield values[start + 1 : stop]
        start = stop
