"""Reads a list of sizes that somebody wrote by hand, and says what is odd about it."""

from collections import Counter
from typing import Any

from trtgate.runtimes.base import Finding

Sizes = tuple[int, ...]


def read_sizes(value: Any, key: str) -> tuple[Sizes | None, list[Finding]]:  # noqa: ANN401 - anything YAML can hold
    """The sizes ascending and once each, and findings; `None` where nothing usable was given."""
    if isinstance(value, str):
        return None, [_text(value, key)]
    if not isinstance(value, list):
        kind = {dict: "a mapping", int: "one number", float: "one number", bool: "a switch"}.get(
            type(value), "nothing"
        )
        return None, [
            _error("not-a-list", f"`{key}`: expected a list of integers, got {kind}", "as in `[1, 2, 4]`")
        ]
    bad = [entry for entry in value if type(entry) is not int or entry < 1]
    good = [entry for entry in value if type(entry) is int and entry >= 1]
    findings = []
    if bad:
        message = f"`{key}` holds `{_shown(bad)}`; sizes are whole numbers above 0"
        findings.append(_error("bad-size", message, "remove them"))
    if not value:
        message = f"`{key}` is empty"
        findings.append(
            _error("empty-list", message, "to switch graphs off, set the group above it to `null`")
        )
    repeated = sorted(size for size, count in Counter(good).items() if count > 1)
    if repeated:
        message = f"`{key}` repeats `{_shown(repeated)}`"
        findings.append(Finding("warning", "repeated-size", message, "each counts once; remove the rest"))
    if good != sorted(good):
        findings.append(Finding("note", "not-ascending", f"`{key}` is not ascending", "order has no meaning"))
    return tuple(sorted(set(good))), findings


def wide_gap(sizes: Sizes, key: str) -> list[Finding]:
    """A warning where the last size is far above the one before, so that everything between pays for it."""
    if len(sizes) < 2 or sizes[-1] <= 2 * sizes[-2] or sizes[-1] < 1024:
        return []
    low, top = sizes[-2], sizes[-1]
    message = f"the last step of `{key}` is wide: steps of {low + 1} to {top} tokens are padded to {top}"
    return [
        Finding("warning", "wide-gap", message, f"without {top} they run at their own size, without a graph")
    ]


def _text(value: str, key: str) -> Finding:
    if "${" in value:
        message = f"`{key}` is the placeholder `{value}`, which nobody filled in"
        return _error("placeholder", message, "put the sizes in its place, as in `[128, 256]`")
    message = f"`{key}`: expected a list of integers, got text `{value}`"
    return _error("text-for-list", message, "remove the quotes")


def _error(code: str, message: str, hint: str) -> Finding:
    return Finding("error", code, message, hint)


def _shown(values: list[Any]) -> str:
    return ", ".join(map(str, values))
