"""Version numbers of runtimes, comparable, with pre-releases before their release."""

import re
from typing import NamedTuple

from trtgate.errors import UsageError

_FORM = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:\.?(rc|a|b|dev)(\d+))?(?:\.post\d+)?(?:\.dev\d+)?(?:\+.*)?")
FINAL = 1_000_000


class Version(NamedTuple):
    """Three numbers and the number of the pre-release, `FINAL` for none."""

    major: int
    minor: int
    patch: int = 0
    pre: int = FINAL

    def __str__(self) -> str:
        """As written: `1.3.0rc27`."""
        text = f"{self.major}.{self.minor}.{self.patch}"
        return text if self.pre == FINAL else f"{text}rc{self.pre}"


def parse_version(text: str) -> Version:
    """Read `1.2.0`, `1.3.0rc27`, `0.32.0+cpu`; `UsageError` for anything else."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"`{text}` is not a version", "write it as in `1.2.0` or `1.3.0rc27`")
    major, minor, patch, kind, pre = match.groups()
    number = FINAL if kind is None else int(pre) if kind == "rc" else 0
    return Version(int(major), int(minor), int(patch or 0), number)
