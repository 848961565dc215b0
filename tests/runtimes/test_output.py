"""The log as it is followed: what is kept, what is masked, what counts as progress."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trtgate.runtimes.output import TAIL_LINES, Output, mask, secrets_of


class Followed:
    """A pipe into an `Output`, with a clock that counts how often progress was noted."""

    def __init__(self, path: Path, secrets: tuple[str, ...] = ()) -> None:
        self.path, self.lines, self.progress = path, [], 0
        source, self._sink = os.pipe()
        self._output = Output(source, path, secrets, self.lines.append)
        self._output.touch = self._count  # type: ignore[method-assign]

    def _count(self) -> None:
        self.progress += 1

    def say(self, *parts: str) -> None:
        for part in parts:
            os.write(self._sink, part.encode())

    def end(self) -> list[str]:
        os.close(self._sink)
        self._output.join(10.0)
        return self._output.tail()


@contextmanager
def followed(path: Path, secrets: tuple[str, ...] = ()) -> Iterator[Followed]:
    yield Followed(path / "log", secrets)


def progress_of(path: Path, *parts: str) -> int:
    with followed(path) as log:
        log.say(*parts)
        log.end()
    return log.progress


def test_log_is_kept_whole_with_its_carriage_returns(tmp_path):
    text = "one\n\r  0%\r 50%\rdone\nlast without end"
    with followed(tmp_path) as log:
        log.say(text)
        assert log.end() == ["one", "0%", "50%", "done", "last without end"]
    assert (tmp_path / "log").read_bytes().decode() == text + "\n"


def test_line_in_two_pieces_is_one_line(tmp_path):
    with followed(tmp_path) as log:
        log.say("batch si", "ze=16\n")
        assert log.end() == ["batch size=16"]


def test_tail_is_bounded_and_the_file_is_not(tmp_path):
    with followed(tmp_path) as log:
        for number in range(TAIL_LINES + 100):
            log.say(f"{number}\n")
        tail = log.end()
    assert (len(tail), tail[0]) == (TAIL_LINES, "100")
    assert (tmp_path / "log").read_text().startswith("0\n")


def test_secret_across_two_pieces_is_masked(tmp_path):
    with followed(tmp_path, ("hf_secret",)) as log:
        log.say("token hf_se", "cret used\n")
        assert log.end() == ["token **** used"]
    assert "hf_secret" not in (tmp_path / "log").read_text()


def test_bytes_that_are_no_text_do_no_harm(tmp_path):
    path = tmp_path / "log"
    source, sink = os.pipe()
    output = Output(source, path, (), lambda _: None)
    os.write(sink, b"\xff\xfe ok\n")
    os.close(sink)
    output.join(10.0)
    assert output.tail()[0].endswith("ok")


@pytest.mark.parametrize(
    ("parts", "count"),
    [
        (["a\n", "b\n"], 2),
        (["a\n", "a\n"], 1),
        (["[10:00:01] waiting\n", "[10:00:02] waiting\n"], 1),
        (["INFO 11-29 15:04:26 [a.py:1] waiting\n", "INFO 11-29 15:04:27 [a.py:1] waiting\n"], 1),
        (['INFO: 127.0.0.1:5000 - "GET /health HTTP/1.1" 503\n'], 0),
        (["\r 0/23 [00:01<?]\r", " 0/23 [00:02<?]\r"], 1),
        (["\r 0/23 [00:01<?]\r", " 1/23 [00:02<?]\r"], 2),
        (["batch size=4\n", "batch size=2\n"], 2),
    ],
    ids=["new", "same", "clock", "date", "probe", "bar that stands", "bar that moves", "sizes"],
)
def test_progress_is_what_was_not_said_a_moment_ago(tmp_path, parts, count):
    assert progress_of(tmp_path, *parts) == count


def test_bar_is_seen_before_its_line_has_ended(tmp_path):
    with followed(tmp_path) as log:
        log.say("start\r", " 1/23")
        while len(log.lines) < 2:
            pass
        assert log.lines == ["start", "1/23"]
        log.end()


def test_secrets_are_values_whose_names_say_so():
    found = secrets_of(
        {"HF_TOKEN": "hf_abc123", "PATH": "/bin", "USE_TOKEN": "1", "API_KEY": "longer_secret"}
    )
    assert found == ("longer_secret", "hf_abc123")
    assert mask("a hf_abc123 b", found) == "a **** b"
