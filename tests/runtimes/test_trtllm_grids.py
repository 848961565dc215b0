"""Generated and effective grids of TensorRT-LLM against vectors computed from its source."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtimes.fakes import CONFIG
from trtgate.runtimes import runtime_for
from trtgate.runtimes.trtllm_grids import (
    DEFAULT_TOKENS,
    Limits,
    effective_decode,
    effective_tokens,
    generated_decode,
)
from trtgate.runtimes.versions import parse_version

V12, MAIN = parse_version("1.2.0"), parse_version("1.4.0rc1")
PADDED = [
    (3, 3, 3),
    (7, 4, 4),
    (100, 16, 16),
    (128, 19, 19),
    (200, 20, 21),
    (256, 20, 21),
    (300, 21, 22),
    (512, 21, 25),
    (1024, 22, 33),
    (2048, 23, 49),
]


@pytest.mark.parametrize(("maximum", "old", "new"), PADDED)
def test_generated_grid_has_the_known_number_of_sizes(maximum, old, new):
    assert len(generated_decode(maximum, padding=True, version=V12)) == old
    assert len(generated_decode(maximum, padding=True, version=MAIN)) == new


@pytest.mark.parametrize(("maximum", "count"), [(128, 34), (256, 35), (1024, 37)])
def test_grid_without_padding_has_the_known_number_of_sizes(maximum, count):
    assert len(generated_decode(maximum, padding=False, version=V12)) == count


def test_tails_differ_between_versions():
    assert generated_decode(300, padding=True, version=V12)[-3:] == (128, 256, 300)
    assert generated_decode(300, padding=True, version=MAIN)[-4:] == (128, 192, 256, 300)


def test_maximum_of_nought_stands_for_128():
    assert generated_decode(0, padding=True, version=V12) == generated_decode(128, padding=True, version=V12)


def test_default_token_list_has_twenty_sizes():
    assert len(DEFAULT_TOKENS) == 20
    assert DEFAULT_TOKENS[-1] == 3072


@given(limit=st.integers(1, 4096), sizes=st.sets(st.integers(1, 5000), min_size=1))
def test_kept_decode_sizes_never_exceed_the_batch_limit(limit, sizes):
    kept, _ = effective_decode(tuple(sorted(sizes)), Limits(limit, 8192), padding=True)
    assert kept[-1] <= limit
    assert (limit in kept) == (max(sizes) >= limit)


def test_first_size_above_the_limit_becomes_the_limit_with_padding_only():
    assert effective_decode((1, 17, 33), Limits(4, 8192), padding=True)[0] == (1, 4)
    assert effective_decode((1, 17, 33), Limits(4, 8192), padding=False)[0] == (1,)


def test_draft_tokens_lower_the_decode_ceiling():
    kept, findings = effective_decode((1, 2, 4, 8, 16, 32), Limits(64, 32, 128, 3), padding=True)
    assert kept == (1, 2, 4, 8)
    assert "32 / (1 + draft length 3) = 8 requests" in findings[0].message


@pytest.mark.parametrize(
    ("limits", "version", "kept"),
    [
        (Limits(1, 8192, 128), "1.2.0", (1, 2, 4, 8, 16, 32, 64)),
        (Limits(1, 8192, 128), "1.3.0rc15", (1, 2, 4, 8, 16, 32, 64, 127)),
        (Limits(1, 8192, 128), "1.4.0rc1", (1, 2, 4, 8, 16, 32, 64, 127)),
        (Limits(64, 2048, 4096), "1.4.0rc1", tuple(size for size in DEFAULT_TOKENS if size <= 2048)),
    ],
)
def test_token_sizes_above_the_ceiling_are_dropped_or_clamped_by_version(limits, version, kept):
    assert effective_tokens(DEFAULT_TOKENS, limits, parse_version(version))[0] == kept


def test_one_version_appends_a_distant_ceiling():
    kept, findings = effective_tokens((64, 128), Limits(64, 8192, 4096), parse_version("1.3.0rc15"))
    assert kept == (64, 128, 8192)
    assert [finding.code for finding in findings] == ["ceiling-appended"]


def test_default_of_the_runtime_pads_nothing_and_ends_at_the_limit():
    grids = runtime_for("tensorrt-llm").default_grids(CONFIG, "1.2.0")
    assert grids.decode == tuple(range(1, 9))
    assert grids.tokens == ()


def test_default_before_1_0_captures_nothing():
    assert runtime_for("tensorrt-llm").default_grids(CONFIG, "0.20.0").decode == ()


def test_token_graphs_of_1_0_follow_the_decode_list():
    grids, findings = runtime_for("tensorrt-llm").effective_grids(CONFIG, "1.0.0")
    assert grids.tokens == (1, 2, 4, 8)
    assert findings[0].code == "no-token-list"


def test_versions_order_with_pre_releases_before_their_release():
    texts = ["0.20.0", "1.0.0", "1.3.0rc2", "1.3.0rc14", "1.3.0", "1.4.0rc1"]
    assert sorted(texts, key=parse_version) == texts
