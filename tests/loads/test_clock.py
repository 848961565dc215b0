"""The kernel's wall-clock stamps and the monotonic clock of the run are one line."""

import struct
import time
from array import array

import pytest

from trtgate.loads import clock as module
from trtgate.loads.clock import Clock, timer_s

STAMP = 35


def control(at_ns):
    return [(1, STAMP, struct.pack("qq", *divmod(at_ns, 1_000_000_000)))]


@pytest.fixture
def fixed(monkeypatch):
    """A clock whose wall is 1000 s ahead of its monotonic time; both stand still until set."""
    state = {"monotonic": 50, "wall": 1050}
    monkeypatch.setattr(time, "monotonic_ns", lambda: state["monotonic"] * 10**9)
    monkeypatch.setattr(time, "time_ns", lambda: state["wall"] * 10**9)
    return state


def test_a_stamp_is_seconds_from_the_start(fixed):
    clock = Clock()
    assert clock.arrival(control(1053 * 10**9)) == 3.0
    fixed["monotonic"] = 52
    assert clock.now() == 2.0
    assert clock.started_unix_s == 1050.0


def test_a_moved_wall_clock_is_followed_and_remembered(fixed):
    clock = Clock()
    fixed["wall"] = 1057
    clock.sync()
    clock.sync()
    assert clock.step_s == 7.0
    assert clock.arrival(control(1057 * 10**9)) == 0.0


def test_the_start_may_be_another_moment(fixed):
    clock = Clock()
    clock.restart(48 * 10**9)
    assert clock.now() == 2.0
    assert clock.started_unix_s == 1048.0


@pytest.mark.parametrize("data", [[], [(1, 2, b"")]])
def test_without_a_stamp_there_is_no_time(data):
    assert Clock().arrival(data) is None


def test_stamps_are_exact_to_the_nanosecond(fixed):
    assert Clock().arrival(control(1050 * 10**9 + 1)) == 1e-9


def test_the_timer_has_a_step():
    assert 0 < timer_s() < 1


def test_the_least_disturbed_reading_of_both_clocks_counts(monkeypatch):
    times = iter([0, 100, 200, 205, 300, 400, 500, 600, 700, 800])
    walls = array("q", [1050, 1203, 1350, 1550, 1750])
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(times))
    monkeypatch.setattr(time, "time_ns", lambda: walls.pop(0))
    assert module._offset_ns() == 1203 - 202
