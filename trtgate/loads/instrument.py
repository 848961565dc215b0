"""The error bar of a run, computed from what the loop saw of itself."""

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trtgate.loads.base import Answer, Instrument
from trtgate.loads.clock import timer_s


@dataclass(frozen=True, slots=True)
class Effort:
    """What one process spent on a run, in seconds; `blind` counts chunks, as `Instrument` says."""

    duration_s: float
    busy_s: float
    starved_s: float
    clock_step_s: float
    blind: int


class Meter:
    """Processor time used and waited for by this thread, from its making."""

    def __init__(self) -> None:
        self._busy_s = time.thread_time()
        self._starved_s = _starved_s()

    def read(self, duration_s: float, clock_step_s: float, blind: int) -> Effort:
        """The effort so far."""
        busy_s = time.thread_time() - self._busy_s
        return Effort(duration_s, busy_s, _starved_s() - self._starved_s, clock_step_s, blind)


def read_instrument(
    answers: Sequence[Answer], lag_s: "array[float]", efforts: Sequence[Effort]
) -> Instrument:
    """One error bar of all processes of a run: the worst of their efforts, all of their lateness and lag.

    Lateness is over asks that did not queue for a connection, lag over reads that the kernel stamped.
    """
    late_s = np.array([answer.sent_s - answer.scheduled_s for answer in answers if not answer.queued])
    late_s = late_s[~np.isnan(late_s)]
    lag = np.frombuffer(lag_s, dtype=np.float32) if lag_s else np.empty(0)
    chunks = sum(len(answer.chunk_s) for answer in answers)
    return Instrument(
        late_p50_ms=_at(late_s, 0.5),
        late_p99_ms=_at(late_s, 0.99),
        late_max_ms=_at(late_s, 1.0),
        lag_p50_ms=_at(lag, 0.5),
        lag_p99_ms=_at(lag, 0.99),
        lag_source="kernel" if len(lag) else "none",
        cpu=max(effort.busy_s / effort.duration_s for effort in efforts),
        starved=max(effort.starved_s / effort.duration_s for effort in efforts),
        delivered=_delivered(answers),
        merged=_merged(answers) / max(chunks, 1),
        blind=sum(effort.blind for effort in efforts) / max(chunks, 1),
        queued=sum(answer.queued for answer in answers),
        clock_step_ms=max(effort.clock_step_s for effort in efforts) * 1e3,
        timer_ms=timer_s() * 1e3,
        reads=len(lag),
    )


def _at(values_s: NDArray[np.floating], p: float) -> float:
    """Order statistic number ceil(p*N) in ms; 0 of nothing."""
    if not len(values_s):
        return 0.0
    place = max(int(np.ceil(p * len(values_s))) - 1, 0)
    return float(np.partition(values_s, place)[place]) * 1e3


def _delivered(answers: Sequence[Answer]) -> float:
    """The rate of sending divided by the rate of the schedule, each over its own span; at most 1."""
    sent = [answer.sent_s for answer in answers if answer.sent_s == answer.sent_s]
    scheduled = [answer.scheduled_s for answer in answers if answer.scheduled_s == answer.scheduled_s]
    if not sent:
        return 0.0
    asked_s = max(scheduled) - min(scheduled)
    late_s = max(max(sent) - max(scheduled), 0.0)
    return len(sent) / len(answers) * (asked_s / (asked_s + late_s) if asked_s > 0 else 1.0)


def _merged(answers: Sequence[Answer]) -> int:
    times = (np.frombuffer(answer.chunk_s, dtype=np.float64) for answer in answers if answer.chunk_s)
    return sum(int(np.count_nonzero(np.diff(one) == 0)) for one in times)


def _starved_s() -> float:
    """How long this thread has waited for a processor, by the scheduler's count; 0 where there is none."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
