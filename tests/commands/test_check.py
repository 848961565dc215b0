"""`trtgate check`: grids and findings of a file, and the code that says whether it may be used."""

import json
from pathlib import Path

import pytest

from tests.candidates import built
from tests.commands.conftest import Trtgate

GOOD = """\
enable_iter_perf_stats: true
max_batch_size: 8
cuda_graph_config:
  enable_padding: true
  batch_sizes: [1, 2, 8]
"""


def file_of(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def test_a_good_file_shows_both_grids_and_ends_with_0(trtgate: Trtgate, tmp_path: Path) -> None:
    path = file_of(tmp_path, GOOD)
    outcome = trtgate("check", path, "--runtime", "tensorrt-llm", "--version", "1.2.0")
    assert (outcome.code, outcome.err) == (0, "")
    assert "decode requested  1 2 8\ndecode effective  1 2 8\ntokens requested  none" in outcome.out
    assert outcome.out.splitlines()[-1].startswith("0 errors")


def test_an_unreachable_size_is_an_error_with_its_arithmetic_and_ends_with_2(
    trtgate: Trtgate, tmp_path: Path
) -> None:
    path = file_of(tmp_path, GOOD.replace("8]", "8, 256]"))
    outcome = trtgate("check", path, "--runtime", "tensorrt-llm", "--version", "1.2.0")
    assert outcome.code == 2
    assert "error: decode sizes `256` are above `max_batch_size` 8" in " ".join(outcome.out.split())
    assert "decode requested  1 2 8 256\ndecode effective  1 2 8\n" in outcome.out
    assert "hint: raise `max_batch_size` to 256 or end the list at 8" in " ".join(outcome.out.split())


def test_a_limit_beside_the_file_is_taken_into_account(trtgate: Trtgate, tmp_path: Path) -> None:
    path = file_of(tmp_path, GOOD.replace("max_batch_size: 8\n", ""))
    arguments = ("check", path, "--runtime", "tensorrt-llm", "--version", "1.2.0")
    assert trtgate(*arguments, "--max-batch-size", 4).code == 2
    assert trtgate(*arguments, "--max-batch-size", 8).code == 0


def test_a_warning_ends_with_2_only_where_strict(trtgate: Trtgate, tmp_path: Path) -> None:
    path = file_of(tmp_path, GOOD.replace("enable_iter_perf_stats: true\n", ""))
    arguments = ("check", path, "--runtime", "tensorrt-llm", "--version", "1.2.0")
    assert (trtgate(*arguments).code, trtgate(*arguments, "--strict").code) == (0, 2)


def test_json_holds_grids_and_findings(trtgate: Trtgate, tmp_path: Path) -> None:
    path = file_of(tmp_path, GOOD.replace("8]", "8, 256]"))
    outcome = trtgate("check", path, "--runtime", "reference", "--json")
    found = json.loads(outcome.out)
    assert (found["requested"]["decode"], found["effective"]["decode"]) == ([1, 2, 8, 256], [1, 2, 8])
    assert {"severity": "error", "code": "unreachable-decode"}.items() <= found["findings"][0].items()
    assert outcome.code == 2


def test_vllm_files_are_judged_too(trtgate: Trtgate, tmp_path: Path) -> None:
    path = file_of(tmp_path, '{"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4]}')
    outcome = trtgate("check", path, "--runtime", "vllm", "--version", "0.20.0", "--max-batch-size", 4)
    assert "decode requested  1 2 4" in outcome.out


@pytest.mark.parametrize("text", [b"\x00\xff\xfe", None], ids=["binary", "missing"])
def test_a_file_that_cannot_be_read_is_one_error(
    trtgate: Trtgate, tmp_path: Path, text: bytes | None
) -> None:
    path = tmp_path / "config.yaml"
    if text is not None:
        path.write_bytes(text)
    outcome = trtgate("check", path, "--runtime", "reference")
    assert (outcome.code, outcome.out) == (2, "")
    assert f"`{path}`" in outcome.error
    assert outcome.hint


def test_the_version_must_be_said(trtgate: Trtgate, tmp_path: Path) -> None:
    outcome = trtgate("check", file_of(tmp_path, GOOD), "--runtime", "vllm")
    assert (outcome.code, outcome.error) == (2, "`--version` is missing")


def test_an_unknown_runtime_names_the_known_ones(trtgate: Trtgate, tmp_path: Path) -> None:
    outcome = trtgate("check", file_of(tmp_path, GOOD), "--runtime", "triton", "--version", "1.0.0")
    assert (outcome.code, outcome.hint) == (2, "known: reference, tensorrt-llm, vllm")


def test_a_configuration_that_build_rendered_is_clean_even_where_strict(
    trtgate: Trtgate, tmp_path: Path
) -> None:
    candidate = built(tmp_path / "c")
    outcome = trtgate(
        "check",
        candidate.config_folder / "config.yaml",
        "--runtime",
        "tensorrt-llm",
        "--version",
        "1.2.0",
        "--strict",
    )
    assert outcome.code == 0


def test_a_file_of_another_runtime_is_refused(trtgate: Trtgate, tmp_path: Path) -> None:
    outcome = trtgate("check", file_of(tmp_path, GOOD), "--runtime", "vllm", "--version", "0.26.0")
    assert outcome.code == 2
    assert "`cuda_graph_config`" in outcome.out
    assert "belong to TensorRT-LLM" in " ".join(outcome.out.split())
