"""Records a live server into a histogram: iteration rows where it gives them, else a histogram's growth.

Reading stops at the end of the time or at the first signal; what was read until then is kept.
"""

from urllib.parse import urlsplit

from trtgate.console import Console
from trtgate.errors import TraceError, UsageError
from trtgate.evidence.live_buckets import record_buckets
from trtgate.evidence.live_rows import record_rows, rows_of
from trtgate.evidence.recording import Log, Wanted, reader, stopped_by_signals, ticks
from trtgate.plans.histogram import Histogram
from trtgate.runtimes import runtime_for
from trtgate.runtimes.ready import new_session

ROWS_EVERY_S = 0.25  # 1,000 rows in this time would be 4,000 steps a second
PAGE_EVERY_S = 1.0


def record(wanted: Wanted, console: Console) -> Histogram:
    """The histogram of what the server does from now on.

    Refuses (`UsageError`) an address that gives no statistics. A signal ends the recording early; where nothing was
    read until then, it is `KeyboardInterrupt`.
    """
    if urlsplit(wanted.url).scheme not in {"http", "https"} or not wanted.name:
        raise UsageError(f"`{wanted.url}` is no address", "as in `http://127.0.0.1:8000`")
    with new_session() as session, stopped_by_signals() as stop:
        read = reader(session, wanted)
        first = read()
        rows = _is_rows(first, wanted)
        every_s = ROWS_EVERY_S if rows else PAGE_EVERY_S
        console.step(
            f"recording `{wanted.page}` for {wanted.for_s:g} s; Ctrl-C ends it and keeps what was read"
        )
        log = Log(wanted, console, first, read, ticks(wanted.for_s, every_s, stop))
        try:
            made = record_rows(log) if rows else record_buckets(log)
        except TraceError:
            if stop.is_set():
                raise KeyboardInterrupt from None
            raise
        if stop.is_set():
            console.step(f"stopped after {log.elapsed_s:.0f} s; what was read is kept")
        return made


def _is_rows(first: str, wanted: Wanted) -> bool:
    """Whether the server gives rows (else an exposition); refuses what does not fit the runtime that was named."""
    rows = rows_of(first) is not None
    asked = None if wanted.runtime is None else runtime_for(wanted.runtime).kind != "vllm"
    if asked is not None and rows != asked:
        shown = "a list of iterations" if rows else "no list of iterations"
        raise UsageError(
            f"`{wanted.page}` gives {shown}, not that of `{wanted.runtime}`", "check `--runtime`"
        )
    return rows
