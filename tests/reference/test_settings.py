import pytest
import yaml

from trtgate.reference.grids import DEFAULT_TOKENS
from trtgate.reference.settings import Settings, SettingsError, apply_options, read_options


def apply(**options):
    return apply_options(Settings("tiny", max_batch_size=32, max_num_tokens=256), options)


def test_without_yaml_decode_graphs_have_the_default_grid_and_token_graphs_are_off():
    settings = apply_options(Settings("tiny"), {})
    assert settings.decode_grid[-1] == 128
    assert not settings.decode_padding
    assert settings.token_grid == ()


def test_null_switches_decode_graphs_off():
    assert apply(cuda_graph_config=None).decode_grid == ()


def test_the_yaml_wins_over_flags():
    settings = apply(max_batch_size=4, cuda_graph_config={"batch_sizes": [1, 8], "enable_padding": True})
    assert settings.decode_grid == (1, 4)


def test_few_tokens_cap_the_decode_grid_too():
    assert apply(
        max_num_tokens=6, cuda_graph_config={"batch_sizes": [4, 8], "enable_padding": True}
    ).decode_grid == (
        4,
        6,
    )


def test_piecewise_without_a_list_gets_the_default_grid():
    assert apply(torch_compile_config={"enable_piecewise_cuda_graph": True}).token_list == DEFAULT_TOKENS


def test_a_token_list_without_the_switch_captures_nothing():
    assert apply(torch_compile_config={"capture_num_tokens": [64]}).token_grid == ()


def test_the_newer_keys_mean_the_same_as_the_older():
    newer = apply(prefill_cuda_graph_backend="piecewise", prefill_capture_num_tokens=[64, 16])
    older = apply(torch_compile_config={"enable_piecewise_cuda_graph": True, "capture_num_tokens": [16, 64]})
    assert newer == older


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"cuda_graph_config": {"batch_sizes": [1, 2], "max_batch_size": 2, "enable_padding": False}}, None),
        ({"cuda_graph_config": {"batch_sizes": [1, 3], "max_batch_size": 4}}, "Please don't set both"),
        ({"cuda_graph_config": {"batch_sizes": [0]}}, "above 0"),
        ({"prefill_cuda_graph_backend": "breakable"}, "only `piecewise`"),
        (
            {
                "prefill_cuda_graph_backend": "disabled",
                "torch_compile_config": {"enable_piecewise_cuda_graph": True},
            },
            "conflicts",
        ),
        ({"kv_cache_config": {"free_gpu_memory_fraction": 1.5}}, "in (0, 1]"),
        ({"max_batch_size": 0}, "at least 1"),
        ({"dtype": "fp4"}, "must be one of auto, float64"),
    ],
)
def test_contradictions_are_refused_as_upstream_refuses_them(options, part):
    if part is None:
        assert apply(**options).decode_grid == (1, 2)
        return
    with pytest.raises(SettingsError, match=part.replace("(", r"\(")):
        apply(**options)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("cuda_graph_confg: {}", "`cuda_graph_confg`: Extra inputs"),
        ("cuda_graph_config: {sizes: [1]}", "`cuda_graph_config.sizes`: Extra inputs"),
        ("max_batch_size: many", "must be of type int"),
        ("enable_chunked_prefill: 1", "must be of type bool"),
        ("backend: trt", "`pytorch` only"),
        ("", "must be a mapping"),
        ("a: [", "cannot be read as YAML"),
    ],
)
def test_a_file_with_anything_unknown_is_refused_in_one_line(tmp_path, text, part):
    path = tmp_path / "options.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_options(path)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_key_of_the_shared_example_is_known(tmp_path, options):
    path = tmp_path / "options.yaml"
    path.write_text(yaml.safe_dump(options))
    assert read_options(path) == options
