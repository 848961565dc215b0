"""Which sizes TensorRT-LLM captures: its generated grids, and what it makes of a given list, by version."""

from dataclasses import dataclass

from trtgate.plans.config import RuntimeConfig
from trtgate.runtimes.base import Finding, Grids
from trtgate.runtimes.versions import Version

# The exact pre-release is known for APPENDS only; the other two are dated by their pull requests.
STEPS_OF_64 = Version(1, 3, 0, 12)  # pull request 12895
APPENDS = Version(1, 3, 0, 15)  # pull request 13574
CLAMPS = Version(1, 3, 0, 22)  # pull request 16256
PREFILL_KEYS = Version(1, 3, 0, 27)
OWN_TOKEN_LIST = Version(1, 1, 0, 0)
GROUPED = Version(1, 0, 0, 0)
FLAT = Version(0, 21, 0, 0)

DEFAULT_MAX_DECODE = 128
DEFAULT_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, *range(512, 3073, 256))


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the sizes of a step."""

    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int | None = None
    draft_len: int = 0

    @property
    def decode_ceiling(self) -> int:
        """The largest decode batch: every request schedules `1 + draft_len` tokens."""
        return min(self.max_batch_size, self.max_num_tokens // (1 + self.draft_len))

    @property
    def token_ceiling(self) -> int:
        """The most tokens that a step can hold."""
        if self.max_seq_len is None:
            return self.max_num_tokens
        return min(self.max_num_tokens, self.max_batch_size * max(self.max_seq_len - 1 - self.draft_len, 1))


def limits_of(config: RuntimeConfig) -> Limits:
    """The limits of a configuration."""
    return Limits(config.max_batch_size, config.max_num_tokens, config.max_seq_len, config.draft_len)


def generated_decode(maximum: int, *, padding: bool, version: Version) -> tuple[int, ...]:
    """The list made from `cuda_graph_config.max_batch_size` where none is given (0 stands for 128)."""
    maximum = maximum or DEFAULT_MAX_DECODE
    if not padding:
        sizes = [*range(1, 33), 64, 128, *_doubling(maximum)]
    elif version >= STEPS_OF_64:
        sizes = [1, 2, 4, *range(8, 129, 8), *range(192, maximum + 1, 64)]
    else:
        sizes = [1, 2, 4, *range(8, 129, 8), *_doubling(maximum)]
    return tuple(sorted({size for size in sizes if size <= maximum} | {maximum}))


def _doubling(maximum: int) -> list[int]:
    sizes, size = [], 256
    while size < maximum:
        sizes.append(size)
        size *= 2
    return sizes


def effective_decode(
    sizes: tuple[int, ...], limits: Limits, *, padding: bool
) -> tuple[tuple[int, ...], list[Finding]]:
    """The sizes that are kept: those up to the ceiling and, with padding, the ceiling itself."""
    cap = limits.decode_ceiling
    kept = tuple(size for size in sizes if size <= cap)
    above = tuple(size for size in sizes if size > cap)
    if not above:
        return kept, []
    if padding and cap not in kept and cap > 0:
        kept = (*kept, cap)
    return kept, [_unreachable_decode(above, cap, limits, replaced=padding)]


def _unreachable_decode(above: tuple[int, ...], cap: int, limits: Limits, *, replaced: bool) -> Finding:
    shown = ", ".join(map(str, above))
    fate = (
        f"the runtime keeps `{cap}` in their place" if replaced else "the runtime drops them without a word"
    )
    slots = 1 + limits.draft_len
    if limits.draft_len and cap < limits.max_batch_size:
        need = above[-1] * slots
        return Finding(
            "error",
            "unreachable-decode",
            f"decode sizes `{shown}` are unreachable: `max_num_tokens` {limits.max_num_tokens} / "
            f"(1 + draft length {limits.draft_len}) = {cap} requests; {fate}",
            f"set `max_num_tokens` to at least {need} or end the list at {cap}",
        )
    name = "max_batch_size" if cap == limits.max_batch_size else "max_num_tokens"
    return Finding(
        "error",
        "unreachable-decode",
        f"decode sizes `{shown}` are above `{name}` {getattr(limits, name)}; {fate}",
        f"raise `{name}` to {above[-1]} or end the list at {cap}",
    )


def effective_tokens(
    sizes: tuple[int, ...], limits: Limits, version: Version
) -> tuple[tuple[int, ...], list[Finding]]:
    """The token sizes that are captured; entries are dropped, clamped or appended, depending on version."""
    if not sizes:
        return (), []
    ceiling, findings = limits.token_ceiling, []
    dropped = tuple(size for size in sizes if size > limits.max_num_tokens)
    within = tuple(size for size in sizes if size <= limits.max_num_tokens)
    above = tuple(size for size in within if size > ceiling)
    kept = tuple(size for size in within if size <= ceiling)
    if dropped:
        findings.append(_dropped(dropped, limits))
    if above:
        findings.append(_above(above, ceiling, limits, version))
    if version >= CLAMPS:
        kept = tuple(sorted({*kept, ceiling})) if above else kept
    elif version >= APPENDS and ceiling not in kept:
        findings.append(_appended(kept, ceiling, version))
        kept = (*kept, ceiling)
    if kept and kept[-1] < ceiling:
        findings.append(_uncovered(kept[-1], ceiling))
    return kept, findings


def _dropped(sizes: tuple[int, ...], limits: Limits) -> Finding:
    shown = ", ".join(map(str, sizes))
    message = (
        f"token sizes `{shown}` are above `max_num_tokens` {limits.max_num_tokens}; they are never captured"
    )
    hint = f"raise `max_num_tokens` to {sizes[-1]} or end the list at {limits.token_ceiling}"
    return Finding("error", "unreachable-tokens", message, hint)


def _above(sizes: tuple[int, ...], ceiling: int, limits: Limits, version: Version) -> Finding:
    shown = ", ".join(map(str, sizes))
    fate = "they are clamped to it" if version >= CLAMPS else "they are announced but never captured"
    extra = f" - {limits.draft_len}" if limits.draft_len else ""
    return Finding(
        "error",
        "unreachable-tokens",
        f"token sizes `{shown}` are above the ceiling `max_batch_size` {limits.max_batch_size} x "
        f"(`max_seq_len` {limits.max_seq_len} - 1{extra}) = {ceiling}; {fate}",
        f"raise `max_seq_len`, or end the list at {ceiling}",
    )


def _appended(kept: tuple[int, ...], ceiling: int, version: Version) -> Finding:
    last = kept[-1] if kept else 0
    return Finding(
        "warning",
        "ceiling-appended",
        f"version `{version}` appends the ceiling {ceiling} to the token sizes: "
        f"steps of {last + 1} to {ceiling} tokens are padded to {ceiling}",
        f"lower `max_num_tokens` towards {last}, or use a version from `{CLAMPS}` on" if last else "",
    )


def _uncovered(last: int, ceiling: int) -> Finding:
    message = f"steps of {last + 1} to {ceiling} tokens run without a graph"
    return Finding("note", "eager-above-tokens", message, f"add {ceiling} only where its measured cost pays")


def config_grids(config: RuntimeConfig, version: Version) -> tuple[Grids, list[Finding]]:
    """The effective grids of a neutral configuration as this adapter renders it."""
    limits = limits_of(config)
    padding = config.decode_buckets is not None
    default = generated_decode(0, padding=False, version=version) if version >= GROUPED else ()
    wanted = config.decode_buckets if padding else default
    decode, findings = effective_decode(wanted or (), limits, padding=padding)
    if not padding:
        findings = []  # the runtime's own list was not asked for by anybody
    tokens = config.token_buckets or ()
    if tokens and version < OWN_TOKEN_LIST:
        findings += [_shared_list(version)] if tokens != decode else []
        tokens = decode
    kept, more = effective_tokens(tokens, limits, version)
    return Grids(decode, kept), [*findings, *more]


def _shared_list(version: Version) -> Finding:
    return Finding(
        "warning",
        "no-token-list",
        f"version `{version}` has no list of token sizes: token graphs are captured at the decode sizes",
        "use a version from `1.1.0` on to choose them apart",
    )
