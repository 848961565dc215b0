"""TensorRT-LLM's YAML, one golden file a layout, and the rules that hold in all of them."""

from pathlib import Path

import pytest
import yaml

from tests.runtimes.fakes import CONFIG, launch_of
from trtgate.plans.config import RuntimeConfig
from trtgate.runtimes import runtime_for

GOLDEN = Path(__file__).with_name("golden")
VERSIONS = ("0.17.0", "0.20.0", "0.21.0", "1.0.0", "1.1.0", "1.2.0", "1.3.0rc14", "1.3.0rc27", "1.4.0rc1")
TARGETS = ("tuned", "default", "eager")


def config_of(target: str) -> RuntimeConfig:
    buckets = {"tuned": {}, "default": {"decode_buckets": None, "token_buckets": None}}
    off = {"decode_buckets": (), "token_buckets": ()}
    return CONFIG.model_copy(update={"target": target, **buckets.get(target, off)})


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("target", TARGETS)
def test_rendered_text_equals_the_golden_file(version, target):
    text = runtime_for("tensorrt-llm").render(config_of(target), version)["config.yaml"]
    assert text == (GOLDEN / f"trtllm-{version}-{target}.yaml").read_text()


@pytest.mark.parametrize("version", VERSIONS[3:])
def test_sizes_are_written_as_a_list_without_a_maximum_beside_it(version):
    data = yaml.safe_load(runtime_for("tensorrt-llm").render(CONFIG, version)["config.yaml"])
    assert data["cuda_graph_config"] == {"enable_padding": True, "batch_sizes": [1, 2, 4, 8]}


@pytest.mark.parametrize("version", VERSIONS)
def test_old_and_new_names_never_meet_in_one_file(version):
    text = runtime_for("tensorrt-llm").render(CONFIG, version)["config.yaml"]
    pairs = [
        ("use_cuda_graph", "cuda_graph_config"),
        ("enable_piecewise_cuda_graph", "prefill_cuda_graph_backend"),
    ]
    assert not [pair for pair in pairs if pair[0] in text and pair[1] in text]


def test_eager_switches_decode_graphs_off_by_name():
    data = yaml.safe_load(runtime_for("tensorrt-llm").render(config_of("eager"), "1.2.0")["config.yaml"])
    assert data["cuda_graph_config"] is None
    assert "torch_compile_config" not in data


def test_sizes_above_the_limits_are_not_written():
    config = CONFIG.model_copy(update={"decode_buckets": (1, 4, 16, 32), "token_buckets": (16, 64, 128)})
    data = yaml.safe_load(runtime_for("tensorrt-llm").render(config, "1.2.0")["config.yaml"])
    assert data["cuda_graph_config"]["batch_sizes"] == [1, 4, 8]
    assert data["torch_compile_config"]["capture_num_tokens"] == [16, 64]


def test_no_setting_is_given_by_flag_and_by_file():
    runtime = runtime_for("tensorrt-llm")
    command = runtime.command(launch_of(Path("folder"), port=8000))
    keys = yaml.safe_load(runtime.render(CONFIG, "1.2.0")["config.yaml"])
    assert not [arg for arg in command if arg.lstrip("-") in keys]


def test_unknown_newer_version_gets_the_newest_layout_and_a_warning():
    runtime = runtime_for("tensorrt-llm")
    assert runtime.render(CONFIG, "2.0.0") == runtime.render(CONFIG, "1.4.0rc1")
    findings = runtime.effective_grids(CONFIG, "2.0.0")[1]
    assert findings[0].code == "untested-version"
