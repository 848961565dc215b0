import os
import stat
from pathlib import Path

import pytest

from trtgate.errors import TrtgateError, UsageError
from trtgate.record import Record, read_text, sha256, write_atomic


class Inner(Record):
    size_bytes: int = 1


class Outer(Record):
    name: str
    inner: Inner = Inner()


def test_equal_records_have_equal_bytes_and_digests() -> None:
    one, other = Outer(name="a", inner=Inner(size_bytes=2)), Outer(inner=Inner(size_bytes=2), name="a")
    assert one.to_json() == other.to_json()
    assert one.digest == other.digest == sha256(one.to_json().encode())


def test_a_record_comes_back_from_disk_as_it_was(tmp_path: Path) -> None:
    record = Outer(name="a", inner=Inner(size_bytes=7))
    record.write(tmp_path / "deep" / "record.json")
    assert Outer.read(tmp_path / "deep" / "record.json") == record


def test_an_unknown_key_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text('{"name": "a", "inner": {"size_byte": 3}}')
    with pytest.raises(UsageError, match=r"unknown key `inner.size_byte`") as caught:
        Outer.read(path)
    assert caught.value.hint == "did you mean `size_bytes`?"


def test_a_missing_key_is_named() -> None:
    with pytest.raises(UsageError, match="`name` is missing in `here`"):
        Outer.parse("{}", "`here`")


def test_a_wrong_value_is_shown_with_its_place() -> None:
    with pytest.raises(UsageError, match=r"`inner.size_bytes` in `here` is 'many'"):
        Outer.parse('{"name": "a", "inner": {"size_bytes": "many"}}', "`here`")


def test_half_a_file_is_called_damaged() -> None:
    with pytest.raises(UsageError, match="not valid JSON"):
        Outer.parse('{"name": "a"', "`here`")


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TrtgateError, match="no space left"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_an_interrupt_while_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def interrupted(_handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, b"new")
    assert [entry.read_bytes() for entry in tmp_path.iterdir()] == [b"old"]


def test_written_files_can_be_read_by_others(tmp_path: Path) -> None:
    write_atomic(tmp_path / "file", b"text")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_reading_what_is_no_text_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not a text file"):
        read_text(tmp_path / "binary")
    with pytest.raises(UsageError, match="does not exist"):
        read_text(tmp_path / "missing")
    with pytest.raises(UsageError, match="cannot be read"):
        read_text(tmp_path)


def test_what_a_command_wrote_is_to_be_made_again_not_corrected() -> None:
    with pytest.raises(UsageError) as caught:
        Outer.parse("{}", "`here`")
    assert caught.value.hint == "the file is damaged; make it again"


def test_another_kind_of_json_is_shown() -> None:
    with pytest.raises(UsageError, match=r"^`here` holds \[\]$"):
        Outer.parse("[]", "`here`")


def test_a_folder_is_not_written_over(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        write_atomic(tmp_path, b"new")
