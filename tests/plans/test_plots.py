"""Pictures: the text plot to the letter, the drawn ones by what is in the file."""

import pytest

from tests.plans.samples import curve
from trtgate.errors import UsageError
from trtgate.plans.costs import GraphMemory
from trtgate.plans.grid import Constraints, choose_grid
from trtgate.plans.histogram import Bins, Histogram
from trtgate.plans.plots import plot_histogram, plot_plan, text_plot

FIT = Bins(low=(1, 2, 4), high=(1, 2, 4), steps=(10, 10, 20))
REPLAY, EAGER = curve((1, 1.0), (16, 3.0)), curve((1, 6.0), (16, 9.0))


@pytest.fixture
def plan():
    memory = GraphMemory(largest_bytes_per_size=1, each_bytes=1)
    limits = Constraints(max_graphs=3, ceiling=16)
    return choose_grid("decode", FIT, FIT, REPLAY, EAGER, limits, memory=memory, capture_s=1)


def test_each_size_has_a_line_with_its_share_the_running_share_and_its_bucket():
    assert text_plot(FIT, (2, 4)) == (
        "1  25.00%   25.00%  ####################\n"
        "2  25.00%   50.00%  ####################                      < 2\n"
        "3   0.00%   50.00%\n"
        "4  50.00%  100.00%  ########################################  < 4\n"
    )


def test_many_sizes_stand_in_at_most_sixteen_groups_of_a_round_width():
    sizes = tuple(range(1, 1001))
    lines = text_plot(Bins(low=sizes, high=sizes, steps=(1,) * 1000), (256,)).splitlines()
    assert len(lines) == 13
    assert lines[0].startswith("    1..80")
    assert lines[3].endswith("< 256")


@pytest.mark.parametrize("largest", [1, 2, 15, 16, 17, 100, 255, 8191, 131072])
def test_no_step_is_lost_in_the_groups(largest):
    lines = text_plot(Bins(low=(1, largest + 1), high=(1, largest + 1), steps=(1, 3))).splitlines()
    assert len(lines) <= 17
    assert "100.00%" in lines[-1]


def test_a_single_size_is_a_single_line():
    assert text_plot(Bins(low=(1,), high=(1,), steps=(5,))).splitlines() == [
        "1  100.00%  100.00%  " + "#" * 40
    ]


def test_no_steps_say_so():
    assert text_plot(Bins()) == "no steps\n"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_drawn_histogram_and_plan_are_the_same_bytes_each_time(plan, tmp_path):
    pytest.importorskip("matplotlib")
    histogram = Histogram(decode=FIT, tokens=Bins(), sources=(), origin="recorded")
    pictures = []
    for name in ("a", "b"):
        plot_histogram(histogram, tmp_path / name / "h.svg", decode_buckets=plan.buckets)
        plot_plan(plan, tmp_path / name / "p.svg", replay=REPLAY, eager=EAGER)
        pictures.append([(tmp_path / name / file).read_bytes() for file in ("h.svg", "p.svg")])
    assert pictures[0] == pictures[1]
    assert all(b"</svg>" in picture for picture in pictures[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_png_is_a_png(plan, tmp_path):
    pytest.importorskip("matplotlib")
    plot_plan(plan, tmp_path / "p.png", replay=REPLAY, eager=EAGER)
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


def test_another_ending_is_refused(plan, tmp_path):
    with pytest.raises(UsageError, match="not a picture"):
        plot_plan(plan, tmp_path / "p.txt", replay=REPLAY, eager=EAGER)
