import signal

import pytest

from trtgate.console import Console, interrupt, mebibytes, percent, print_error, size_list, table


def test_errors_and_hints_are_one_line_each_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("two\nlines", "next\nstep")
    assert capsys.readouterr() == ("", "error: two lines\nhint: next step\n")


def test_results_go_to_stdout_and_steps_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    console.show("result")
    console.step("working")
    console.record({"a": 1})
    assert capsys.readouterr() == ("result\n", "working\n")


def test_json_replaces_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(as_json=True, quiet=True)
    console.show("result")
    console.step("working")
    console.record({"b": 2, "a": 1})
    assert capsys.readouterr() == ('{\n  "a": 1,\n  "b": 2\n}\n', "")


def test_progress_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Console().progress("half")
    Console().progress_done()
    assert capsys.readouterr() == ("", "")


def test_a_table_aligns_names_left_and_numbers_right() -> None:
    lines = table(("name", "ms"), (("a", 1.5), ("longer", None))).splitlines()
    assert lines == ["name     ms", "------  ---", "a       1.5", "longer    -"]


def test_long_lists_of_sizes_are_shortened_and_counted() -> None:
    assert size_list((1, 2, 4)) == "1 2 4"
    assert size_list(()) == "none"
    shown = size_list(tuple(range(1, 200)), width=40)
    assert len(shown) <= 40
    assert shown.endswith("... 199 (199 sizes)")


def test_unknown_numbers_are_a_dash() -> None:
    assert (percent(None), mebibytes(None)) == ("-", "-")
    assert (percent(0.125), mebibytes(1 << 20)) == ("12.5 %", "1.0 MiB")


def test_an_interrupt_that_was_lost_is_raised_by_the_next_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupt(signal.SIGTERM, None)
    with pytest.raises(KeyboardInterrupt):
        Console().step("working")
    Console().step("cleaning up")
    assert capsys.readouterr().err == "cleaning up\n"
