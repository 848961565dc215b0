"""The runtimes that can be launched, watched, read and stopped; one line each."""

from trtgate.errors import UsageError
from trtgate.runtimes.base import Runtime
from trtgate.runtimes.reference import Reference
from trtgate.runtimes.trtllm import TensorRtLlm
from trtgate.runtimes.vllm import Vllm

RUNTIMES: dict[str, Runtime] = {
    "tensorrt-llm": TensorRtLlm(),
    "vllm": Vllm(),
    "reference": Reference(),
}


def runtime_for(kind: str) -> Runtime:
    """The adapter of a kind; `UsageError` with the known kinds."""
    if kind not in RUNTIMES:
        raise UsageError(f"there is no runtime `{kind}`", f"known: {', '.join(sorted(RUNTIMES))}")
    return RUNTIMES[kind]
