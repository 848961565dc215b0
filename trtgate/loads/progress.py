"""Live progress of a run: counts so far, and medians of what ended since the last report."""

from collections.abc import Callable
from statistics import median

from trtgate.loads.base import Answer, Progress

_PERIOD_S = 1.0


class Reporter:
    """Counts answers as they end and tells a callback once a second."""

    def __init__(self, asked: int) -> None:
        self._asked = asked
        self._complete = 0
        self._failed = 0
        self._unsent = 0
        self._tokens = 0
        self._ttft_ms: list[float] = []
        self._tpot_ms: list[float] = []
        self._next_s = _PERIOD_S

    def note(self, answer: Answer) -> None:
        """Count one outcome."""
        if answer.error is not None:
            self._failed += 1
            self._unsent += answer.sent_s != answer.sent_s
            return
        self._complete += 1
        self._tokens += answer.tokens
        self._ttft_ms.append((answer.first_s - answer.scheduled_s) * 1e3)
        if answer.tokens > 1:
            self._tpot_ms.append((answer.last_s - answer.first_s) / (answer.tokens - 1) * 1e3)

    def report(self, progress: Callable[[Progress], None], now_s: float, running: int) -> None:
        """Call `progress` if a second has passed."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + _PERIOD_S
        ttft_ms, self._ttft_ms = self._ttft_ms, []
        tpot_ms, self._tpot_ms = self._tpot_ms, []
        progress(
            Progress(
                elapsed_s=now_s,
                asked=self._asked,
                sent=self._complete + self._failed - self._unsent + running,
                running=running,
                complete=self._complete,
                failed=self._failed,
                tokens=self._tokens,
                ttft_ms=median(ttft_ms) if ttft_ms else float("nan"),
                tpot_ms=median(tpot_ms) if tpot_ms else float("nan"),
            )
        )
