"""Validation by the runtime's own classes, against small packages that stand in for the real ones."""

import sys

import pytest

from trtgate.runtimes.installed import validate_installed

TRTLLM = """
from pydantic import BaseModel, ConfigDict

class TorchLlmArgs(BaseModel):
    model_config = ConfigDict(extra="forbid")
    model: str
    max_batch_size: int = 2048
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package `tensorrt_llm` 1.2.0 with the class that is asked."""

    def install(source: str = TRTLLM) -> None:
        package = tmp_path / "tensorrt_llm" / "llmapi"
        package.mkdir(parents=True)
        (tmp_path / "tensorrt_llm" / "__init__.py").write_text("print('[TensorRT-LLM] version 1.2.0')\n")
        (package / "__init__.py").write_text("")
        (package / "llm_args.py").write_text(source)
        metadata = tmp_path / "tensorrt_llm-1.2.0.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text("Metadata-Version: 2.1\nName: tensorrt-llm\nVersion: 1.2.0\n")

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield install
    for name in [name for name in sys.modules if name.startswith("tensorrt_llm")]:
        del sys.modules[name]


def test_package_that_is_not_there_has_nothing_to_say():
    assert validate_installed("reference", "a: 1", "1.2.0") == []


def test_accepted_configuration_gives_no_finding(installed):
    installed()
    assert validate_installed("tensorrt-llm", "max_batch_size: 8", "1.2.0") == []


def test_refused_keys_and_types_are_errors(installed):
    installed()
    said = [
        found.message
        for found in validate_installed("tensorrt-llm", "bogus: 1\nmax_batch_size: [1]", "1.2.0")
    ]
    assert "`bogus`: Extra inputs are not permitted" in said
    assert any(message.startswith("`max_batch_size`: Input should be a valid integer") for message in said)


def test_other_version_is_not_asked(installed):
    installed()
    (found,) = validate_installed("tensorrt-llm", "bogus: 1", "1.1.0")
    assert (found.severity, found.code) == ("note", "installed-version")


def test_package_that_cannot_be_imported_is_a_note(installed):
    installed("import no_such_library\n")
    (found,) = validate_installed("tensorrt-llm", "a: 1", "1.2.0")
    assert found.message.endswith("ModuleNotFoundError: No module named 'no_such_library'")
