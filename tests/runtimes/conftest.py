"""The marker `vllm`: tests that need a real vLLM are left out unless `-m vllm` asks for them."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "vllm: needs a real vLLM (`tests/runtimes/install_vllm.py`)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "vllm" in config.getoption("-m"):
        return
    left_out = [item for item in items if item.get_closest_marker("vllm")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
