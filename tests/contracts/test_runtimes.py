"""What holds for every runtime in the table; a new line there is tested before anybody writes a test for it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtgate.errors import UsageError
from trtgate.plans.config import RuntimeConfig
from trtgate.profile import Runtime as ProfileRuntime
from trtgate.runtimes import RUNTIMES, runtime_for
from trtgate.runtimes.base import Grids, Launch, Phase, Runtime
from trtgate.runtimes.versions import parse_version

KINDS = sorted(RUNTIMES)
TUNED = RuntimeConfig(
    target="tuned",
    decode_buckets=(1, 2, 4, 8),
    token_buckets=(16, 32),
    max_batch_size=8,
    max_num_tokens=64,
    max_seq_len=64,
)
EAGER = TUNED.model_copy(update={"target": "eager", "decode_buckets": (), "token_buckets": ()})
DEFAULT = TUNED.model_copy(update={"target": "default", "decode_buckets": None, "token_buckets": None})
SIZES = st.sets(st.integers(1, 600), min_size=1, max_size=6).map(lambda sizes: tuple(sorted(sizes)))
CONFIGS = st.builds(
    RuntimeConfig,
    target=st.just("tuned"),
    decode_buckets=SIZES,
    token_buckets=SIZES,
    max_batch_size=st.integers(1, 512),
    max_num_tokens=st.integers(16, 2048),
    max_seq_len=st.integers(2, 4096),
    draft_len=st.integers(0, 3),
)


@pytest.fixture(params=KINDS)
def runtime(request) -> Runtime:
    return RUNTIMES[request.param]


def launch(runtime: Runtime, folder) -> Launch:
    return Launch("tiny", "127.0.0.1", 8123, TUNED, folder, version=newest(runtime))


def newest(runtime: Runtime) -> str:
    return str(runtime.versions[1])


@pytest.mark.parametrize("kind", KINDS)
def test_table_and_profile_know_the_same_kinds(kind):
    assert runtime_for(kind).kind == kind
    assert ProfileRuntime(kind=kind).kind == kind


def test_unknown_kind_is_refused_with_the_known_ones():
    with pytest.raises(UsageError) as caught:
        runtime_for("triton")
    assert all(kind in caught.value.hint for kind in KINDS)


@pytest.mark.parametrize("config", [TUNED, EAGER, DEFAULT], ids=["tuned", "eager", "default"])
def test_rendering_gives_named_text_and_the_same_one_twice(runtime, config):
    files = runtime.render(config, newest(runtime))
    assert files == runtime.render(config, newest(runtime))
    assert all(text.strip() and "/" not in name for name, text in files.items())


def test_oldest_and_newest_version_are_rendered(runtime):
    for version in runtime.versions:
        assert runtime.render(TUNED, str(version))


def test_command_is_a_list_that_names_place_model_and_files(runtime, tmp_path):
    command = runtime.command(launch(runtime, tmp_path))
    assert {"tiny", "127.0.0.1", "8123"} <= set(command)
    for name in runtime.render(TUNED, newest(runtime)):
        assert str(tmp_path / name) in command


def test_user_arguments_come_last(runtime, tmp_path):
    from dataclasses import replace

    given = replace(launch(runtime, tmp_path), args=("--one", "two"))
    assert runtime.command(given)[-2:] == ["--one", "two"]


def test_eager_has_no_graphs_and_default_needs_no_list(runtime):
    assert runtime.effective_grids(EAGER, newest(runtime))[0] == Grids()
    assert runtime.effective_grids(DEFAULT, newest(runtime))[0] == runtime.default_grids(
        TUNED, newest(runtime)
    )


def test_buckets_asked_for_within_the_limits_are_in_effect(runtime):
    grids, _ = runtime.effective_grids(TUNED, newest(runtime))
    assert set(TUNED.decode_buckets) <= set(grids.decode)
    assert set(TUNED.token_buckets) <= set(grids.tokens)


@pytest.mark.parametrize("kind", KINDS)
@given(config=CONFIGS)
@settings(max_examples=60, deadline=None)
def test_effective_grids_ascend_within_the_limits(kind, config):
    grids, _ = RUNTIMES[kind].effective_grids(config, newest(RUNTIMES[kind]))
    for sizes, limit in ((grids.decode, config.max_batch_size), (grids.tokens, config.max_num_tokens)):
        assert list(sizes) == sorted(set(sizes))
        assert all(1 <= size <= limit for size in sizes)


@pytest.mark.parametrize("kind", KINDS)
@given(config=CONFIGS)
@settings(max_examples=30, deadline=None)
def test_what_is_rendered_passes_its_own_check(kind, config):
    runtime, version = RUNTIMES[kind], newest(RUNTIMES[kind])
    for text in runtime.render(config, version).values():
        assert [found for found in runtime.check(text, version) if found.severity == "error"] == []


def test_untested_version_is_a_finding(runtime):
    codes = [found.code for found in runtime.effective_grids(TUNED, "99.0.0")[1]]
    assert ("untested-version" in codes) == (runtime.kind != "reference")


def test_empty_log_means_nothing_captured_and_no_stage(runtime):
    assert runtime.captured([]) == Grids()
    assert runtime.phase("some line") is None
    assert runtime.rows(["some line"]) == []


def test_ready_line_is_recognised(runtime):
    assert runtime.phase("INFO:     Application startup complete.") == Phase("ready")


def test_rows_of_another_shape_are_no_steps(runtime):
    assert runtime.steps([{}, {"iter": 3}], Grids((1,), (16,)), TUNED) == []


@pytest.mark.parametrize(
    ("lines", "exit_code", "code"),
    [
        (["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"], 1, "capture-oom"),
        (["RuntimeError: CUDA error: operation not permitted when stream is capturing"], 1, "capture-failed"),
        (["CUDA driver version is insufficient for CUDA runtime version"], 1, "driver-mismatch"),
        (["OSError: [Errno 98] Address already in use"], 1, "port-taken"),
        (["ValueError: something odd"], 1, "died"),
        ([], -9, "killed"),
        (["still loading"], None, "hung"),
    ],
)
def test_failure_is_named_with_phase_and_hint(runtime, lines, exit_code, code):
    failure = runtime.failure(lines, exit_code, Phase("capture", "decode", 64))
    assert failure.code == code
    assert failure.hint
    if code in {"capture-oom", "capture-failed", "died", "killed", "hung"}:
        assert "capturing decode bucket 64" in failure.message


def test_version_range_is_in_order(runtime):
    oldest, newest_known = runtime.versions
    assert oldest <= newest_known
    assert parse_version(str(oldest)) == oldest


@pytest.mark.parametrize("text", ["", "[]", "42", "a: [1", "{'a': 1}", "a: 1\n---\nb: 2\n", "# words\n"])
def test_odd_files_are_findings_not_crashes(runtime, text):
    assert isinstance(runtime.check(text, newest(runtime)), list)
