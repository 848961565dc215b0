import pytest

from trtgate.reference.grids import (
    DEFAULT_TOKENS,
    default_batch_sizes,
    effective_batch_sizes,
    effective_tokens,
    next_bucket,
)


@pytest.mark.parametrize(
    ("top", "padding", "count", "tail"),
    [
        (3, True, 3, (1, 2, 3)),
        (7, True, 4, (1, 2, 4, 7)),
        (100, True, 16, (88, 96, 100)),
        (128, True, 19, (120, 128)),
        (200, True, 20, (128, 200)),
        (256, True, 20, (128, 256)),
        (300, True, 21, (128, 256, 300)),
        (512, True, 21, (128, 256, 512)),
        (1024, True, 22, (128, 256, 512, 1024)),
        (2048, True, 23, (512, 1024, 2048)),
        (128, False, 34, (32, 64, 128)),
        (256, False, 35, (128, 256)),
        (1024, False, 37, (512, 1024)),
        (0, True, 19, (120, 128)),
    ],
)
def test_default_decode_grids_are_those_of_tensorrt_llm_1_2(top, padding, count, tail):
    grid = default_batch_sizes(top, padding)
    assert len(grid) == count
    assert grid[-len(tail) :] == tail


def test_the_default_token_grid_has_twenty_values_up_to_3072():
    assert len(DEFAULT_TOKENS) == 20
    assert DEFAULT_TOKENS[-1] == 3072


def test_padding_replaces_the_first_size_above_the_cap_by_the_cap():
    assert effective_batch_sizes([1, 4, 16, 32], 10, padding=True) == (1, 4, 10)


def test_the_cap_is_not_added_where_every_size_fits():
    assert effective_batch_sizes([1, 4], 10, padding=True) == (1, 4)


def test_without_padding_sizes_above_the_cap_vanish():
    assert effective_batch_sizes([1, 4, 16], 10, padding=False) == (1, 4)


def test_token_counts_above_the_limit_are_dropped_and_none_is_added():
    assert effective_tokens([512, 64, 64, 128], 300) == (64, 128)


def test_the_next_bucket_is_the_smallest_that_holds_the_size():
    assert [next_bucket((2, 8), size) for size in (1, 2, 3, 8, 9)] == [2, 2, 8, 8, None]
