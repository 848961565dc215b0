from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.answers import step
from tests.candidates import platform, small_profile
from trtgate.errors import InvalidMeasurementError
from trtgate.evidence.calibrate import Measured, Place, conclude, dense_arm
from trtgate.evidence.curves import (
    Point,
    Seen,
    curve_of,
    exact_times,
    memory_of_buckets,
    memory_of_total,
    noise,
    points_of,
)
from trtgate.evidence.startup import Reading, read_capture_s, read_graph_memory
from trtgate.evidence.sweep import ceilings_of, due, joined, log_spaced, prompts, rounds_of, wave, within
from trtgate.runtimes.base import Grids


def reading(**changes: object) -> Reading:
    """A start that reported nothing, unless said otherwise."""
    fields = {
        "phases_ms": {},
        "memory_marks": {},
        "capture_ms": {"decode": {}, "tokens": {}},
        "bucket_bytes": {"decode": {}, "tokens": {}},
        "graph_bytes": None,
        "kv_tokens": None,
        "kv_bytes_per_token": None,
    }
    return Reading(**(fields | changes))


def measured(sizes: Grids, ms_of, **changes: object) -> Measured:
    """A start in which every size was visited cold and twice warm, and took `ms_of(size)`."""
    keys = [("decode", size) for size in sizes.decode] + [("tokens", size) for size in sizes.tokens]
    seen = [Seen(kind, size, (99.0,)) for kind, size in keys]
    seen += [Seen(kind, size, (ms_of(size),)) for kind, size in keys * 2]
    return Measured(sizes, tuple(seen), reading(**changes))


# sizes


@given(st.integers(1, 20_000), st.integers(2, 64))
def test_the_sizes_reach_from_one_to_the_largest_and_are_no_more_than_asked_for(
    largest: int, points: int
) -> None:
    sizes = log_spaced(largest, points)
    assert (sizes[0], sizes[-1]) == (1, largest)
    assert list(sizes) == sorted(set(sizes))
    assert len(sizes) <= max(points, 2)


def test_the_sizes_are_spaced_by_equal_ratios() -> None:
    assert log_spaced(256, 9) == (1, 2, 4, 8, 16, 32, 64, 128, 256)


def test_the_ceilings_follow_from_all_limits() -> None:
    profile = small_profile(limits={"max_batch_size": 8, "max_num_tokens": 12, "draft_len": 1})
    ceilings = ceilings_of(profile)
    assert (ceilings.decode, ceilings.tokens) == (6, 12)


def test_sizes_that_no_step_can_have_are_left_out_and_those_of_two_grids_are_joined() -> None:
    ceilings = ceilings_of(small_profile())
    grids = within(Grids((1, 4, 5), (64, 65)), ceilings)
    assert grids == Grids((1, 4), (64,))
    assert joined(grids, Grids((2, 4), (8,))) == Grids((1, 2, 4), (8, 64))


# visits


def test_every_round_holds_every_size_in_another_order_which_the_seed_fixes() -> None:
    sizes = Grids(tuple(range(1, 20)), tuple(range(1, 20)))
    first, second = islice(rounds_of(sizes, 1), 2)
    assert sorted(first) == sorted(second)
    assert first != second
    assert next(rounds_of(sizes, 1)) == first
    assert next(rounds_of(sizes, 2)) != first


def test_only_sizes_that_were_missed_are_visited_again_and_not_for_ever() -> None:
    order = [("decode", 1), ("decode", 2)]
    hits = {("decode", 1): 2, ("decode", 2): 1}
    assert due(order, {}, 0, wanted=2) == order
    assert due(order, hits, 2, wanted=2) == due(order, hits, 4, wanted=2) == [("decode", 2)]
    assert due(order, hits, 5, wanted=2) == []


def test_a_runtime_that_tells_no_step_is_asked_for_one_round_only() -> None:
    assert due([("decode", 1)], {("decode", 1): 0}, 1, wanted=4) == []


def test_a_wave_holds_exactly_as_many_requests_of_equal_length_with_prompts_of_their_own() -> None:
    asks = wave(7, 256, 300, (1,))
    assert len(asks) == len({ask.prompt for ask in asks}) == 7
    assert len({ask.max_tokens for ask in asks}) == 1


def test_a_wave_that_was_missed_is_repeated_longer_but_never_beyond_the_limit() -> None:
    lengths = [wave(4, 96, 300, (1,), missed)[0].max_tokens for missed in range(4)]
    assert lengths == [25, 50, 92, 92]


@given(st.integers(1, 500), st.integers(2, 200))
def test_prompts_hold_exactly_the_size_and_fit_a_request(size: int, max_seq_len: int) -> None:
    asks = prompts(size, max_seq_len, 300, (1,))
    parts = asks if len(asks) == 1 else asks[1:]  # a plug goes before several
    assert sum(len(ask.prompt) for ask in parts) == size
    assert max(len(ask.prompt) + ask.max_tokens for ask in asks) <= max_seq_len


def test_several_prompts_come_while_a_longer_one_keeps_the_runtime_busy() -> None:
    plug, *parts = prompts(100, 64, 300, (1,))
    assert [len(ask.prompt) for ask in (plug, *parts)] == [63, 63, 37]
    assert all(ask.at_s > plug.at_s for ask in parts)


# points


def test_only_steps_of_exactly_the_size_and_without_padding_count() -> None:
    steps = [
        step("decode", 4, 4, 1.0),
        step("decode", 3, 4, 2.0),
        step("decode", 4, 8, 3.0),
        step("decode", 4, None, 4.0),
        step("tokens", 4, 4, 5.0),
        step("decode", 4, 4, None),
    ]
    assert exact_times(steps, "decode", 4, "replay") == (1.0,)
    assert exact_times(steps, "decode", 4, "eager") == (4.0,)


def test_the_first_visit_with_steps_is_cold_and_left_out() -> None:
    seen = [Seen("decode", 2, times) for times in ((), (50.0, 9.0), (1.0,), (3.0,))]
    (point,) = points_of(seen, "decode")
    assert (point.ms, point.visits, point.steps) == (2.0, 2, 2)


def test_a_long_visit_counts_once_and_a_slow_step_does_not_widen_the_spread() -> None:
    seen = [Seen("decode", 2, times) for times in ((9.0,), (1.0,) * 90, (2.0,), (2.0, 2.0, 500.0))]
    (point,) = points_of(seen, "decode")
    assert point.ms == 2.0
    seen = [Seen("tokens", 8, (ms,)) for ms in (99.0, 10.0, 11.0, 12.0, 900.0, 10.0)]
    assert points_of(seen, "tokens")[0].spread_ms == pytest.approx(1.4826)


def test_a_size_that_was_met_once_has_no_point() -> None:
    assert points_of([Seen("decode", 2, (1.0,)), Seen("decode", 2, ())], "decode") == ()


@given(
    st.dictionaries(st.integers(1, 500), st.floats(0.001, 1000), min_size=2, max_size=12),
    st.integers(2, 4),
)
def test_the_curve_goes_through_every_measured_point(times: dict[int, float], visits: int) -> None:
    seen = [Seen("tokens", size, (ms,)) for size, ms in times.items() for _ in range(visits)]
    curve = curve_of(points_of(seen, "tokens"), "tokens", "eager", 500)
    assert curve.at(sorted(times)).tolist() == pytest.approx(
        [times[size] for size in sorted(times)], abs=1e-6
    )
    assert (curve.basis, curve.spread) == ("measured", (0.0,) * len(times))


def test_one_point_makes_no_curve_unless_there_is_but_one_size() -> None:
    points = points_of([Seen("decode", 1, (1.0,))] * 2, "decode")
    with pytest.raises(InvalidMeasurementError, match="1 of the decode sizes could be measured with eager"):
        curve_of(points, "decode", "eager", 8)
    assert curve_of(points, "decode", "eager", 1).sizes == (1,)


def test_noise_is_said_where_more_than_a_quarter_of_the_points_are_wide() -> None:
    quiet, loud = Point(1, 1.0, 0.25, 3, 3), Point(2, 1.0, 0.26, 3, 3)
    assert noise([quiet, quiet, quiet, loud]) is None
    assert str(noise([quiet, quiet, loud, loud])).startswith("noisy: at 2 of 4 points")


# graph memory and capture


@given(st.dictionaries(st.integers(1, 8192), st.integers(0, 1 << 32), min_size=1, max_size=20))
def test_the_memory_of_the_measured_grid_is_kept(taken: dict[int, int]) -> None:
    memory = memory_of_buckets(taken)
    assert abs(memory.of(len(taken), max(taken)) - sum(taken.values())) <= 1


def test_the_largest_bucket_holds_the_pool_and_the_others_their_mean() -> None:
    memory = memory_of_buckets({1: 10, 2: 30, 100: 520})
    assert (memory.each_bytes, memory.largest_bytes_per_size) == (20, 5.0)


def test_memory_that_came_back_during_capture_is_not_negative() -> None:
    memory = memory_of_buckets({1: -500, 2: -30, 4: 100})
    assert (memory.each_bytes, memory.largest_bytes_per_size) == (0, 0.0)


def test_a_bare_total_is_shared_by_size_and_kept() -> None:
    decode, tokens = memory_of_total(1000, (20, 80))
    assert (decode.of(5, 20), tokens.of(3, 80)) == (200, 800)


def memory(eager: Reading, replay: Reading, *, on_gpu: bool = True) -> tuple[int, str]:
    """Bytes of both grids, one bucket of 10 and one of 90, and the source."""
    found = read_graph_memory(
        eager, replay, Grids((10,), (90,)), kv_bytes_per_token=100, kv_fraction=0.5, on_gpu=on_gpu
    )
    return found.decode.of(1, 10) + found.tokens.of(1, 90), found.source.partition(",")[0]


def test_graph_memory_comes_from_the_closest_source() -> None:
    marks = {"capture": 1000, "ready": 6000}
    buckets = {"decode": {10: 7}, "tokens": {90: 8}}
    full = {"kv_tokens": 40, "memory_marks": marks, "graph_bytes": 300}
    eager = reading(kv_tokens=50)
    assert memory(eager, reading(**full, bucket_bytes=buckets)) == (
        15,
        "reported by the runtime for each bucket",
    )
    assert memory(eager, reading(**full)) == (300, "reported by the runtime as a sum")
    lost = reading(kv_tokens=40, memory_marks=marks)
    assert memory(eager, lost) == (2000, "by the KV cache lost against eager")
    equal = reading(kv_tokens=50, memory_marks=marks)
    assert memory(eager, equal) == (5000, "by device memory from capture to readiness")
    assert memory(eager, reading()) == (0, "not seen")


def test_graphs_take_no_memory_where_there_is_no_gpu() -> None:
    replay = reading(graph_bytes=300, kv_tokens=40)
    assert memory(reading(kv_tokens=50), replay, on_gpu=False) == (0, "none")


def test_capture_time_is_the_runtimes_own_or_the_time_to_readiness() -> None:
    grids = Grids((1, 2), (8, 16))
    own = reading(capture_ms={"decode": {1: 100.0, 2: 300.0}, "tokens": {}}, phases_ms={})
    assert read_capture_s(own, "decode", grids) == 0.2
    logged = reading(phases_ms={"capture": 1000.0, "ready": 3000.0})
    assert read_capture_s(logged, "tokens", grids) == 0.5
    assert read_capture_s(reading(), "tokens", grids) == 0.0


# the whole


def test_costs_name_model_and_platform_and_say_what_was_left_out(tmp_path: Path) -> None:
    profile, sizes = small_profile(), Grids((1, 2, 4), (1, 64))
    eager = measured(sizes, float)
    replay = measured(Grids((1, 2, 4), (1, 8, 64)), lambda size: size / 2, kv_bytes_per_token=777)
    replay = Measured(replay.sizes, tuple(one for one in replay.seen if one.size != 8), replay.reading)
    found = conclude(profile, ceilings_of(profile), eager, replay, Place(tmp_path, platform(), 5))
    assert (found.costs.model, found.costs.platform) == ("tiny", "cpu: some cpu, 2 cores")
    assert found.costs.decode_replay.ms == (0.5, 1.0, 2.0)
    assert found.costs.token_eager.ms == (1.0, 64.0)
    assert found.costs.kv_bytes_per_token == 777
    assert found.findings == (
        "graph memory: none, there is no GPU",
        "left out, no replay steps of exactly this size: tokens 8",
    )


def test_without_a_report_the_models_shape_gives_the_cache_of_a_token(tmp_path: Path) -> None:
    profile, start = small_profile(), measured(Grids((1, 2), (1, 2)), float)
    found = conclude(profile, ceilings_of(profile), start, start, Place(tmp_path, platform(), 5))
    assert found.costs.kv_bytes_per_token == 5


def test_the_dense_arm_captures_what_was_asked_for(tmp_path: Path) -> None:
    arm = dense_arm(small_profile(), Grids((1, 2, 4), (1, 8, 64)), tmp_path)
    assert arm.runtime.effective_grids(arm.config, arm.version)[0] == Grids((1, 2, 4), (1, 8, 64))
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
