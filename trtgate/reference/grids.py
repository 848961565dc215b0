"""The sizes that TensorRT-LLM 1.2 would capture: its default grids, and what the engine keeps of a list."""

from bisect import bisect_left
from collections.abc import Iterable

DEFAULT_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, *range(256, 3073, 256))
DEFAULT_MAX_BATCH_SIZE = 128


def default_batch_sizes(max_batch_size: int, padding: bool) -> tuple[int, ...]:
    """The decode grid that stands in for a missing list, up to `max_batch_size` (0 means 128)."""
    top = max_batch_size or DEFAULT_MAX_BATCH_SIZE
    low = [1, 2, 4, *range(8, 129, 8)] if padding else [*range(1, 33), 64, 128]
    powers = [2**i for i in range(8, top.bit_length() + 1) if 2**i < top]
    return tuple(sorted({size for size in [*low, *powers] if size < top} | {top}))


def effective_batch_sizes(sizes: Iterable[int], cap: int, padding: bool) -> tuple[int, ...]:
    """What is kept of a decode list: up to `cap`, and `cap` itself where padding is on and a size above it."""
    ordered = sorted(set(sizes))
    kept = [size for size in ordered if size <= cap]
    if padding and len(kept) < len(ordered) and cap not in kept:
        kept.append(cap)
    return tuple(kept)


def effective_tokens(sizes: Iterable[int], max_num_tokens: int) -> tuple[int, ...]:
    """What is kept of a token list, ascending: larger counts than `max_num_tokens` are dropped without a word."""
    return tuple(sorted({size for size in sizes if size <= max_num_tokens}))


def next_bucket(grid: tuple[int, ...], size: int) -> int | None:
    """The smallest bucket that holds `size`, or None above the largest."""
    index = bisect_left(grid, size)
    return grid[index] if index < len(grid) else None
