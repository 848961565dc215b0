"""How far the clocks of other machines are from ours, measured by asking them, with a bound on the error."""

import time
from collections.abc import Callable, Iterator, Sequence

from trtgate.loads.base import LoadResult
from trtgate.loads.metrics import samples
from trtgate.loads.validity import late_limit_ms
from trtgate.record import Record

ROUND_TRIPS = 16


class WorkerClock(Record):
    """What a worker's monotonic clock shows more than ours, give or take `error_ms`; `asked` is its share."""

    worker: str
    offset_ms: float
    error_ms: float
    round_trips: int
    asked: int


def read_offset(
    ask_there: Callable[[], int], *, here: Callable[[], int] = time.monotonic_ns, trips: int = ROUND_TRIPS
) -> tuple[float, float]:
    """Their clock minus ours and the bound on its error, in ms, from clocks in ns.

    Of all round trips the one with the least delay counts (Cristian 1989): their reading was made within it, so
    the offset to its middle is off by half the delay at most, however unequal the ways there and back are.
    """
    readings = []
    for _ in range(trips):
        before_ns = here()
        there_ns = ask_there()
        after_ns = here()
        readings.append((after_ns - before_ns, there_ns - (before_ns + after_ns) / 2))
    delay_ns, offset_ns = min(readings)
    return offset_ns / 1e6, delay_ns / 2e6


def clock_faults(clocks: Sequence[WorkerClock], result: LoadResult, margin: float) -> Iterator[str]:
    """A reason for INVALID for each clock that is less certain than requests may be late."""
    limit_ms = late_limit_ms(samples(result)["ttft_ms"], margin)
    for clock in clocks:
        if clock.error_ms > limit_ms:
            yield (
                f"the clock of worker `{clock.worker}` is known to {clock.error_ms:.1f} ms only, "
                f"limit {limit_ms:.1f} ms"
            )
