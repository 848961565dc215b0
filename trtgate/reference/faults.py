"""Failures on demand, so that gates and fire drills have something real to catch."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

BUCKETS = {
    "wrong-output": "wrong_output",
    "wrong-tokens": "wrong_tokens",
    "skip-capture": "skip_capture",
    "oom-at-capture": "oom_at_capture",
}
FLAGS = {"crash-at-start": "crash_at_start", "hang-at-start": "hang_at_start", "early-health": "early_health"}
KNOWN = (
    "wrong-output:BUCKET[:padded]",
    "wrong-tokens:BUCKET[:padded]",
    "skip-capture:BUCKET",
    "oom-at-capture:BUCKET",
    "error-rate:FRACTION",
    "crash-after:REQUESTS",
    "hang-after:REQUESTS",
    "slow:PERCENT%",
    "slow-tail:PERCENT%:MS",
    "slow-first-hit:MS",
    *FLAGS,
)


class FaultError(ValueError):
    """A fault that does not exist or lacks its value."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What a server does wrong on purpose; the default does nothing wrong."""

    wrong_output: frozenset[int] = frozenset()
    wrong_tokens: frozenset[int] = frozenset()
    only_padded: bool = False
    skip_capture: frozenset[int] = frozenset()
    oom_at_capture: frozenset[int] = frozenset()
    error_rate: float = 0.0
    crash_after: int = 0
    hang_after: int = 0
    crash_at_start: bool = False
    hang_at_start: bool = False
    early_health: bool = False
    slow: float = 0.0
    tail_rate: float = 0.0
    tail_ms: float = 0.0
    first_hit_ms: float = 0.0

    def wrong(self, kind: str, bucket: int, size: int) -> bool:
        """Whether this replay answers wrongly; `kind` is `decode` or `tokens`."""
        chosen = self.wrong_output if kind == "decode" else self.wrong_tokens
        return bucket in chosen and (size < bucket or not self.only_padded)


def parse_faults(specs: list[str]) -> Faults:
    """Join fault options such as `wrong-output:8`; refuses (`FaultError`) what it does not know."""
    faults = Faults()
    for spec in specs:
        try:
            faults = _with(faults, *spec.split(":"))
        except (ValueError, IndexError, KeyError) as error:
            raise FaultError(f"fault `{spec}` is not one of: {', '.join(KNOWN)}") from error
    return faults


def _with(faults: Faults, name: str, *values: str) -> Faults:
    changed: dict[str, Any]
    if name in FLAGS and not values:
        changed = {FLAGS[name]: True}
    elif name in BUCKETS and values[1:] in {(), ("padded",)}:
        field = BUCKETS[name]
        changed = {field: getattr(faults, field) | {int(values[0])}}
        changed["only_padded"] = faults.only_padded or "padded" in values
    elif name == "slow-tail":
        changed = {"tail_rate": _fraction(values[0]), "tail_ms": float(values[1])}
    else:
        (value,) = values
        field, read = NUMBERS[name]
        changed = {field: read(value)}
    return replace(faults, **changed)


def _fraction(text: str) -> float:
    value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if value < 0:
        raise ValueError(text)
    return value


NUMBERS: dict[str, tuple[str, Callable[[str], float]]] = {
    "crash-after": ("crash_after", int),
    "error-rate": ("error_rate", _fraction),
    "hang-after": ("hang_after", int),
    "slow": ("slow", _fraction),
    "slow-first-hit": ("first_hit_ms", float),
}
