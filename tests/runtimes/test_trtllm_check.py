"""Configurations written by hand, judged: the field cases on grids, limits, keys, files and versions."""

import pytest

from trtgate.runtimes import runtime_for

RUNTIME = runtime_for("tensorrt-llm")
STATS = "enable_iter_perf_stats: true\n"


def found(text: str, version: str = "1.2.0", **limits: int) -> dict[str, str]:
    """Findings by code; the note that statistics are off is left out by switching them on."""
    return {item.code: item.message for item in RUNTIME.check(STATS + text, version, limits)}


def hints(text: str, version: str = "1.2.0", **limits: int) -> dict[str, str]:
    return {item.code: item.hint for item in RUNTIME.check(STATS + text, version, limits)}


def decode(sizes: str, more: str = "") -> str:
    return f"cuda_graph_config: {{enable_padding: true, batch_sizes: {sizes}{more}}}\n"


def tokens(sizes: str, switch: str = "true") -> str:
    return f"torch_compile_config: {{enable_piecewise_cuda_graph: {switch}, capture_num_tokens: {sizes}}}\n"


def test_sizes_above_the_batch_limit_are_named_with_the_limit():
    text = "max_batch_size: 128\n" + decode("[1, 2, 4, 128, 256, 512, 768, 1024]")
    assert found(text)["unreachable-decode"] == (
        "decode sizes `256, 512, 768, 1024` are above `max_batch_size` 128; the runtime keeps `128` in their place"
    )
    assert hints(text)["unreachable-decode"] == "raise `max_batch_size` to 1024 or end the list at 128"


def test_requested_and_effective_grids_are_both_shown():
    seen = RUNTIME.inspect("max_batch_size: 128\n" + decode("[1, 128, 256]"), "1.2.0")
    assert (seen.requested.decode, seen.effective.decode) == ((1, 128, 256), (1, 128))


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (
            "1.2.0",
            (
                "`cuda_graph_config` gives both `max_batch_size` and `batch_sizes`, and the list is not the one that "
                "version `1.2.0` generates for 64 (64 is not the largest entry 32)"
            ),
        ),
        (
            "1.4.0rc1",
            "`cuda_graph_config` gives both `max_batch_size` and `batch_sizes`, and 64 is not the largest entry 32",
        ),
    ],
)
def test_maximum_and_list_that_disagree_are_refused(version, said):
    text = decode("[1, 2, 4, 8, 16, 32]", ", max_batch_size: 64")
    assert found(text, version)["both-given"] == said
    assert hints(text, version)["both-given"] == "give `batch_sizes` alone: it wins where both are accepted"


def test_maximum_that_equals_the_largest_entry_is_only_a_warning_in_new_versions():
    findings = RUNTIME.check(STATS + decode("[1, 32]", ", max_batch_size: 32"), "1.4.0rc1")
    assert {item.code: item.severity for item in findings}["both-given"] == "warning"


@pytest.mark.parametrize("maximum", [1, 2, 3, 5, 7, 9])
def test_small_maximum_alone_gives_sizes_within_it(maximum):
    text = f"cuda_graph_config: {{max_batch_size: {maximum}, enable_padding: true}}"
    grid = RUNTIME.inspect(text, "1.2.0").effective.decode
    assert grid[-1] == maximum
    assert grid == tuple(sorted(set(grid)))


def test_repeated_and_unordered_sizes_are_named():
    said = found(decode("[1, 2, 160, 172, 196, 160, 172, 196]"))
    assert said["repeated-size"] == "`cuda_graph_config.batch_sizes` repeats `160, 172, 196`"
    assert said["not-ascending"] == "`cuda_graph_config.batch_sizes` is not ascending"


def test_equal_grids_in_other_words_are_equal():
    left, right = (RUNTIME.inspect(decode(sizes), "1.2.0").effective for sizes in ("[4, 1, 4]", "[1, 4]"))
    assert left == right


def test_sizes_that_are_no_sizes_are_refused():
    said = found(tokens("[0, -8, 512, 128, 128]"))
    assert (
        said["bad-size"]
        == "`torch_compile_config.capture_num_tokens` holds `0, -8`; sizes are whole numbers above 0"
    )
    assert said["repeated-size"] == "`torch_compile_config.capture_num_tokens` repeats `128`"


@pytest.mark.parametrize(
    ("version", "hint"),
    [
        ("1.2.0", "write `enable_piecewise_cuda_graph: true`, or remove the list"),
        ("1.4.0rc1", "write `prefill_cuda_graph_backend: piecewise`, or remove the list"),
    ],
)
def test_list_while_the_feature_is_off_has_no_effect(version, hint):
    text = tokens("[128, 512]", switch="false")
    expected = "`torch_compile_config.capture_num_tokens` has no effect while the feature is off"
    assert found(text, version)["no-effect"] == expected
    assert hints(text, version)["no-effect"] == hint


def test_batches_above_the_largest_size_are_named():
    said = found("max_batch_size: 64\n" + decode("[1, 2, 4, 8, 16]"))
    assert said["eager-above-decode"] == "decode batches of 17 to 64 run without a graph"


def test_reachable_ceiling_of_tokens_is_named():
    text = "max_num_tokens: 700\n" + tokens("[16, 352, 688]")
    assert found(text)["eager-above-tokens"] == "steps of 689 to 700 tokens run without a graph"
    assert hints(text)["eager-above-tokens"] == "add 700 only where its measured cost pays"


def test_draft_tokens_make_sizes_unreachable_with_the_arithmetic_shown():
    text = "max_num_tokens: 32\nmax_batch_size: 32\nspeculative_config: {max_draft_len: 3}\n"
    text += decode("[1, 2, 4, 8, 10, 16, 32]")
    assert found(text)["unreachable-decode"] == (
        "decode sizes `10, 16, 32` are unreachable: `max_num_tokens` 32 / (1 + draft length 3) = 8 requests; "
        "the runtime keeps `8` in their place"
    )
    assert hints(text)["unreachable-decode"] == "set `max_num_tokens` to at least 128 or end the list at 8"


@pytest.mark.parametrize(
    ("version", "fate", "kept"),
    [
        ("1.2.0", "they are announced but never captured", (512, 1024)),
        ("1.4.0rc1", "they are clamped to it", (512, 1024)),
    ],
)
def test_token_sizes_above_batch_and_sequence_limits_are_named(version, fate, kept):
    text = "max_batch_size: 2\nmax_seq_len: 513\nmax_num_tokens: 8192\n" + tokens("[512, 1024, 3072]")
    seen = RUNTIME.inspect(STATS + text, version)
    assert seen.effective.tokens == kept
    message = next(item.message for item in seen.findings if item.code == "unreachable-tokens")
    assert message == (
        f"token sizes `3072` are above the ceiling `max_batch_size` 2 x (`max_seq_len` 513 - 1) = 1024; {fate}"
    )


def test_last_token_size_far_above_the_others_is_a_trap():
    said = found(tokens("[64, 512, 8192]"))
    assert said["wide-gap"] == (
        "the last step of `torch_compile_config.capture_num_tokens` is wide: "
        "steps of 513 to 8192 tokens are padded to 8192"
    )


def test_ceiling_that_a_version_appends_is_a_trap():
    assert found(tokens("[64, 512]"), "1.3.0rc15")["ceiling-appended"] == (
        "version `1.3.0rc15` appends the ceiling 8192 to the token sizes: "
        "steps of 513 to 8192 tokens are padded to 8192"
    )


RENAMED = [
    ("use_cuda_graph: true", "use_cuda_graph", "write `cuda_graph_config` (`null` switches graphs off)"),
    ("cuda_graph_batch_sizes: [1]", "cuda_graph_batch_sizes", "write `cuda_graph_config.batch_sizes`"),
    ("cuda_graph_max_batch_size: 8", "cuda_graph_max_batch_size", "write `cuda_graph_config.max_batch_size`"),
    (
        "cuda_graph_padding_enabled: true",
        "cuda_graph_padding_enabled",
        "write `cuda_graph_config.enable_padding`",
    ),
    ("autotuner_enabled: true", "autotuner_enabled", "write `enable_autotuner`"),
    ("torch_compile_enabled: true", "torch_compile_enabled", "write `torch_compile_config`"),
    (
        "torch_compile_piecewise_cuda_graph: true",
        "torch_compile_piecewise_cuda_graph",
        "write `torch_compile_config.enable_piecewise_cuda_graph`",
    ),
    (
        "cuda_graph_config: {padding_enabled: true}",
        "cuda_graph_config.padding_enabled",
        "write `cuda_graph_config.enable_padding`",
    ),
    ("pytorch_backend_config: {}", "pytorch_backend_config", "write `the same keys at the top level`"),
]


@pytest.mark.parametrize("version", ["1.0.0", "1.2.0", "1.4.0rc1"])
@pytest.mark.parametrize(("text", "key", "hint"), RENAMED)
def test_renamed_key_is_refused_with_its_successor(text, key, hint, version):
    assert found(text, version)["renamed-key"] == f"`{key}` is unknown to version `{version}`"
    assert hints(text, version)["renamed-key"] == hint


def test_old_keys_are_fine_in_their_own_version():
    nested = "pytorch_backend_config: {use_cuda_graph: true, cuda_graph_padding_enabled: true, "
    nested += "cuda_graph_batch_sizes: [1, 8], enable_iter_perf_stats: true}\nmax_batch_size: 8"
    seen = RUNTIME.inspect(nested, "0.20.0")
    assert [item.code for item in seen.findings] == []
    assert seen.effective.decode == (1, 8)


def test_moved_settings_are_deprecated_not_refused():
    text = tokens("[128, 512]")
    assert found(text, "1.4.0rc1")["deprecated-key"] == (
        "`torch_compile_config.capture_num_tokens` is deprecated in version `1.4.0rc1`"
    )
    assert hints(text, "1.4.0rc1")["deprecated-key"] == "write `prefill_capture_num_tokens`"


def test_new_key_under_an_old_version_is_refused():
    text = "prefill_capture_num_tokens: [128]"
    assert found(text)["too-new-key"] == "`prefill_capture_num_tokens` is unknown before version `1.3.0rc27`"
    assert hints(text)["too-new-key"] == "version `1.2.0` has `torch_compile_config.capture_num_tokens`"


def test_old_and_new_list_together_are_refused():
    text = tokens("[128]") + "prefill_cuda_graph_backend: piecewise\nprefill_capture_num_tokens: [256]"
    said = found(text, "1.4.0rc1")["given-twice"]
    assert said == "`capture_num_tokens` and `prefill_capture_num_tokens` are both given"


@pytest.mark.parametrize(("version", "winner"), [("1.2.0", "the file"), ("1.4.0rc1", "the command line")])
def test_limit_on_command_line_and_in_file_is_refused_and_the_winner_named(version, winner):
    assert found("max_batch_size: 1", version, max_batch_size=64)["given-twice"] == (
        f"`max_batch_size` is 64 on the command line and 1 in the file; in version `{version}` {winner} wins"
    )


@pytest.mark.parametrize("text", ["", "# nothing but words\n"])
def test_empty_file_is_no_settings_and_refused_where_it_crashes(text):
    (old,) = [item for item in RUNTIME.check(text, "1.2.0") if item.severity == "error"]
    assert old.message == "the file holds no settings, and version `1.2.0` fails on an empty file"
    assert not [item for item in RUNTIME.check(text, "1.4.0rc1") if item.severity == "error"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "the file holds a list; expected `key: value` lines"),
        ("42", "the file holds `42`; expected `key: value` lines"),
        ("a: 1\n---\nb: 2\n", "2 documents in one file; the runtime reads one"),
        ("a: [1", "not valid YAML in line 1"),
    ],
)
def test_file_of_another_shape_is_refused_in_one_line(text, said):
    assert [item.message for item in RUNTIME.check(text, "1.2.0")] == [said]


@pytest.mark.parametrize(
    ("value", "code", "said"),
    [
        (
            "'${capture_num_tokens}'",
            "placeholder",
            (
                "`torch_compile_config.capture_num_tokens` is the placeholder `${capture_num_tokens}`, "
                "which nobody filled in"
            ),
        ),
        (
            "'[128,256]'",
            "text-for-list",
            "`torch_compile_config.capture_num_tokens`: expected a list of integers, got text `[128,256]`",
        ),
        (
            "128",
            "not-a-list",
            "`torch_compile_config.capture_num_tokens`: expected a list of integers, got one number",
        ),
    ],
)
def test_text_in_place_of_a_list_is_named(value, code, said):
    assert found(tokens(value))[code] == said


def test_misspelt_key_is_named_with_its_neighbour():
    assert hints("enable_chunked_prefil: true")["unknown-key"] == "did you mean `enable_chunked_prefill`?"
    said = found("cuda_graph_config: {enabel_padding: true}")["unknown-key"]
    assert said == "`cuda_graph_config.enabel_padding` is no setting of any version"


def test_padding_off_and_statistics_off_are_warned_about():
    said = {
        item.code: item.message for item in RUNTIME.check("cuda_graph_config: {batch_sizes: [1, 8]}", "1.2.0")
    }
    assert said["padding-off"] == "`enable_padding` is off: only batches of exactly a listed size use a graph"
    assert "`/metrics` stays empty" in said["statistics-off"]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("return_perf_metrics: true", "second-reader", "its own reader may empty `/metrics`"),
        ("stream_interval: 10", "stream-interval", "several tokens come at once"),
        ("speculative_config: {eagle3_one_model: false}", "conflict", "do not go with two-model speculation"),
    ],
)
def test_settings_that_spoil_a_gate_are_named(text, code, said):
    assert said in found(f"{text}\n{tokens('[128]')}")[code]


def test_graphs_switched_off_leave_nothing_to_say():
    seen = RUNTIME.inspect(STATS + "cuda_graph_config: null", "1.2.0")
    assert (seen.effective.decode, seen.effective.tokens, seen.findings) == ((), (), ())


def test_errors_come_first():
    severities = [item.severity for item in RUNTIME.check(decode("[4, 1, 4, 9000]"), "1.2.0")]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)


@pytest.mark.parametrize("version", ["0.17.0", "0.21.0", "1.0.0", "1.1.0", "1.2.0", "1.3.0rc15", "1.4.0rc1"])
def test_what_is_rendered_has_no_errors_of_its_own(version):
    from tests.runtimes.fakes import CONFIG

    text = RUNTIME.render(CONFIG, version)["config.yaml"]
    assert [item for item in RUNTIME.check(text, version) if item.severity == "error"] == []
