from pathlib import Path

from trtgate.evidence.environment import identify_model, read_platform


def test_a_machine_without_a_driver_says_so() -> None:
    here = read_platform()
    assert bool(here.gpus) != bool(here.gpu_note)
    assert here.title.startswith(("cpu: ", "1 x", "2 x", "4 x", "8 x"))


def test_a_model_folder_is_identified_by_every_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    first = identify_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{ }")
    second = identify_model(str(tmp_path))
    assert [file.path for file in first.files] == ["config.json"]
    assert first.sha256 != second.sha256


def test_a_model_that_is_only_a_name_is_identified_by_it() -> None:
    assert identify_model("tiny").files == ()
    assert identify_model("tiny").sha256 != identify_model("other").sha256
