"""The adapter for the reference runtime, which imitates `trtllm-serve` 1.2 and reports real replays."""

import os
import sys
from collections.abc import Iterable, Mapping

from trtgate.plans.config import RuntimeConfig
from trtgate.runtimes.base import Finding, Grids, Inspection, Launch, Row
from trtgate.runtimes.trtllm import FILE, TensorRtLlm
from trtgate.runtimes.versions import Version

LAYOUT = "1.2.0"  # whatever its own version says


class Reference(TensorRtLlm):
    """`python -m trtgate.reference serve`, in a process of its own."""

    kind = "reference"
    versions = (Version(1, 2), Version(1, 2))

    def command(self, launch: Launch) -> list[str]:
        """It ends with trtgate, whatever ends that."""
        place = ["--host", launch.host, "--port", str(launch.port), "--config", str(launch.folder / FILE)]
        serve = [sys.executable, "-m", "trtgate.reference", "serve", launch.model]
        return [*serve, *place, "--die-with-parent", str(os.getpid()), *launch.args]

    def render(self, config: RuntimeConfig, version: str) -> dict[str, str]:
        """The YAML of the version that it imitates."""
        del version
        files = super().render(config, LAYOUT)
        return {name: text.replace("print_iter_log: true\n", "") for name, text in files.items()}

    def rows(self, lines: Iterable[str]) -> list[Row]:
        """None: the rows of `/metrics` hold everything."""
        del lines
        return []

    def default_grids(self, config: RuntimeConfig, version: str) -> Grids:
        """Those of the version that it imitates."""
        del version
        return super().default_grids(config, LAYOUT)

    def effective_grids(self, config: RuntimeConfig, version: str) -> tuple[Grids, tuple[Finding, ...]]:
        """Those of the version that it imitates."""
        del version
        return super().effective_grids(config, LAYOUT)

    def inspect(self, text: str, version: str, limits: Mapping[str, int] | None = None) -> Inspection:
        """Judged as the version that it imitates."""
        del version
        return super().inspect(text, LAYOUT, limits)
