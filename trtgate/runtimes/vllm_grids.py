"""Which sizes vLLM captures: its default list, and the two grids that one list of token counts makes."""

from dataclasses import dataclass
from typing import Literal

from trtgate.plans.config import RuntimeConfig
from trtgate.runtimes.base import Finding, Grids
from trtgate.runtimes.versions import Version

Mode = Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]
MODES: tuple[Mode, ...] = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")

# Read in 0.26.0 and 0.32.0 only; the step of 16 above 256 is dated by memory of the release notes.
STEPS_OF_16 = Version(0, 12)
OWN_MODE = Version(0, 11)
ADDS_MAX_NUM_SEQS = Version(0, 32)
KEEPS_FULL = Version(0, 32)  # FULL_AND_PIECEWISE without compilation keeps its full half


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the sizes of a step."""

    max_num_seqs: int
    max_num_batched_tokens: int
    spec_tokens: int = 0

    @property
    def slots(self) -> int:
        """Tokens that one request schedules in a decode step."""
        return 1 + self.spec_tokens

    @property
    def decode_tokens(self) -> int:
        """Tokens of the largest decode step."""
        return min(self.max_num_seqs * self.slots, self.max_num_batched_tokens)


def limits_of(config: RuntimeConfig) -> Limits:
    """The limits of a configuration."""
    return Limits(config.max_batch_size, config.max_num_tokens, config.draft_len)


def default_sizes(limits: Limits, version: Version) -> tuple[int, ...]:
    """The list that vLLM computes where none is given. Source: `vllm/config/vllm.py` of 0.26.0 and 0.32.0."""
    ceiling = min(limits.max_num_seqs * limits.slots * 2, 512, limits.max_num_batched_tokens)
    if version >= STEPS_OF_16:
        sizes = [1, 2, 4, *range(8, 256, 8), *range(256, ceiling + 1, 16)]
    else:
        sizes = [1, 2, 4, *range(8, ceiling + 1, 8)]
    sizes.append(limits.max_num_batched_tokens)
    if version >= ADDS_MAX_NUM_SEQS:
        sizes.append(limits.max_num_seqs * limits.slots)
    return tuple(sorted({size for size in sizes if size <= ceiling}))


def wanted_mode(config: RuntimeConfig) -> Mode:
    """The mode that gives graphs of the kinds asked for; both where the choice is left to the runtime."""
    if config.decode_buckets is None or config.token_buckets is None:
        return "FULL_AND_PIECEWISE"
    decode, tokens = _reachable(config)
    if decode:
        return "FULL_AND_PIECEWISE" if tokens else "FULL_DECODE_ONLY"
    return "PIECEWISE" if tokens else "NONE"


def wanted_sizes(config: RuntimeConfig) -> tuple[int, ...]:
    """The one list for both grids, in tokens; what no step can reach is left out."""
    decode, tokens = _reachable(config)
    return tuple(sorted(decode | tokens))


def _reachable(config: RuntimeConfig) -> tuple[set[int], set[int]]:
    limits = limits_of(config)
    decode = {size * limits.slots for size in config.decode_buckets or ()}
    tokens = config.token_buckets or ()
    return (
        {size for size in decode if size <= limits.decode_tokens},
        {size for size in tokens if size <= limits.max_num_batched_tokens},
    )


def grids_of(sizes: tuple[int, ...], mode: Mode, limits: Limits) -> Grids:
    """What a list means: full decode graphs up to the batch limit, piecewise ones at every size."""
    if mode == "FULL":
        return Grids(tuple(size // limits.slots for size in sizes if size % limits.slots == 0), sizes)
    fits = [
        size for size in sizes if limits.slots <= size <= limits.decode_tokens and size % limits.slots == 0
    ]
    decode = tuple(size // limits.slots for size in fits) if mode.startswith("FULL") else ()
    return Grids(decode, sizes if mode in {"PIECEWISE", "FULL_AND_PIECEWISE"} else ())


def config_grids(config: RuntimeConfig, version: Version) -> tuple[Grids, list[Finding]]:
    """The effective grids of a neutral configuration as this adapter renders it."""
    limits, mode = limits_of(config), wanted_mode(config)
    if config.decode_buckets is None or config.token_buckets is None:
        return grids_of(default_sizes(limits, version), mode, limits), []
    grids = grids_of(wanted_sizes(config), mode, limits)
    findings = [*_shared(config, grids), *uncovered(grids, mode, limits)]
    dropped = [size for size in config.token_buckets if size > limits.max_num_batched_tokens]
    if dropped:
        findings.append(above_budget(dropped, limits))
    return grids, findings


def above_budget(sizes: list[int], limits: Limits) -> Finding:
    """Sizes that the runtime drops."""
    message = (
        f"sizes `{', '.join(map(str, sizes))}` are above `max_num_batched_tokens` "
        f"{limits.max_num_batched_tokens}; the runtime drops them"
    )
    hint = f"raise `max_num_batched_tokens` to {sizes[-1]} or end the list at {limits.max_num_batched_tokens}"
    return Finding("error", "unreachable-tokens", message, hint)


def uncovered(grids: Grids, mode: Mode, limits: Limits) -> list[Finding]:
    """Decode batches without a full graph: those between the largest decode graph and the batch limit."""
    if not grids.decode or grids.decode[-1] * limits.slots >= limits.decode_tokens:
        return []
    low, top = grids.decode[-1] + 1, limits.decode_tokens // limits.slots
    fate = "a piecewise graph at most" if mode == "FULL_AND_PIECEWISE" else "no graph"
    message = (
        f"decode batches of {low} to {top} get {fate}: no size is captured from {low} to `max_num_seqs` {top}"
    )
    return [Finding("warning", "eager-above-decode", message, f"add {top * limits.slots} to the list")]


def _shared(config: RuntimeConfig, grids: Grids) -> list[Finding]:
    more_decode = sorted(set(grids.decode) - set(config.decode_buckets or ()))
    more_tokens = sorted(set(grids.tokens) - set(config.token_buckets or ()))
    if not (more_decode or more_tokens):
        return []
    parts = [("decode", more_decode), ("token", more_tokens)]
    shown = " and ".join(f"{name} sizes `{', '.join(map(str, sizes))}`" for name, sizes in parts if sizes)
    return [Finding("note", "shared-list", f"one list serves both grids, which adds {shown}", "")]
