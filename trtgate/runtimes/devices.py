"""Memory of the GPUs as the driver reports it; empty where there is none."""

import time

import pynvml


def used_bytes() -> tuple[int, ...]:
    """Bytes in use on each device, in the driver's order."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(
            int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(index)).used)
            for index in range(pynvml.nvmlDeviceGetCount())
        )
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def wait_until_free(
    before: tuple[int, ...], deadline_s: float, slack_bytes: int = 512 << 20
) -> tuple[int, ...]:
    """Wait until no device holds more than before a start and some slack; returns what is over, in bytes."""
    limit = time.monotonic() + deadline_s
    while True:
        over = tuple(
            now - then for now, then in zip(used_bytes(), before, strict=False) if now > then + slack_bytes
        )
        if not over or time.monotonic() >= limit:
            return over
        time.sleep(0.1)
