from pathlib import Path

import pytest

from tests.candidates import built, small_profile
from trtgate.errors import IntegrityError, UsageError
from trtgate.releases.assemble import assemble, read_replay
from trtgate.releases.candidate import TRACE, Candidate, open_candidate
from trtgate.releases.inputs import read_inputs


def test_the_same_profile_and_trace_give_the_same_plan(tmp_path: Path) -> None:
    assert built(tmp_path / "a").plan().digest == built(tmp_path / "b").plan().digest


def test_building_again_replaces_the_plan_and_nothing_else(tmp_path: Path) -> None:
    candidate = built(tmp_path / "a")
    (candidate.folder / "notes.txt").write_text("mine")
    before = candidate.plan().digest
    after = built(tmp_path / "a", grid={"max_decode_graphs": 1}).plan()
    assert after.digest != before
    assert (candidate.folder / "notes.txt").read_text() == "mine"


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="holds something else than a candidate"):
        built(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(("target", "decode", "tokens"), [("eager", (), ()), ("default", (1, 2, 3, 4), ())])
def test_the_other_rungs_of_the_ladder_are_candidates_too(
    tmp_path: Path, target, decode: tuple[int, ...], tokens: tuple[int, ...]
) -> None:
    plan = assemble(read_inputs(small_profile(), None, None, None), target, tmp_path / "c", ())[1]
    assert (plan.effective_decode, plan.effective_tokens, plan.decode) == (decode, tokens, None)


def test_the_replayed_traffic_is_the_later_part_of_the_trace(tmp_path: Path) -> None:
    candidate = built(tmp_path / "c")
    trace = read_replay(candidate, candidate.plan())
    assert 0 < len(trace) < 200
    assert trace.arrival_s[0] == 0.0
    assert int((trace.prompt_tokens + trace.output_tokens).max()) <= 96


def test_a_changed_replay_trace_is_refused(tmp_path: Path) -> None:
    candidate = built(tmp_path / "c")
    other = built(tmp_path / "d", traffic={"length_scale": 0.03})
    candidate.path(TRACE).write_bytes(other.path(TRACE).read_bytes())
    with pytest.raises(IntegrityError, match="is not what `build` wrote"):
        read_replay(candidate, candidate.plan())


def test_a_profile_changed_after_the_build_is_refused(tmp_path: Path) -> None:
    candidate = built(tmp_path / "c")
    small_profile(limits={"max_batch_size": 2}).write(candidate.path("profile.json"))
    with pytest.raises(IntegrityError, match="was changed after `build`"):
        candidate.plan()


def test_pinned_sizes_are_in_the_grid_and_must_fit(tmp_path: Path) -> None:
    assert built(tmp_path / "c", grid={"pinned_decode": [3]}).plan().effective_decode.count(3) == 1
    with pytest.raises(UsageError, match=r"the pinned decode sizes \[9\] exceed the limits"):
        built(tmp_path / "d", grid={"pinned_decode": [9]})


def test_an_unknown_device_or_model_shape_is_refused_with_those_known() -> None:
    with pytest.raises(UsageError, match=r"`grid.device` is `z80`"):
        read_inputs(small_profile(grid={"device": "z80"}), None, None, None)
    with pytest.raises(UsageError, match="no known shape `huge`"):
        read_inputs(small_profile(model={"shape": "huge"}), None, None, None)


def test_costs_of_another_model_are_refused(tmp_path: Path) -> None:
    candidate = built(tmp_path / "c")
    with pytest.raises(UsageError, match="holds costs of `tiny`, the profile serves `other`"):
        read_inputs(small_profile(model={"path": "other"}), None, candidate.path("costs.json"), None)


def test_a_path_that_is_no_candidate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no candidate folder"):
        open_candidate(tmp_path / "nothing")
    with pytest.raises(UsageError, match=r"`profile.json` is missing|`plan.json` is missing"):
        Candidate(tmp_path).plan()


@pytest.mark.parametrize("damage", [b"", b"junk", b"PAR1junkPAR1"])
def test_a_damaged_replay_is_refused(tmp_path: Path, damage: bytes) -> None:
    candidate = built(tmp_path / "c")
    candidate.path("trace.parquet").write_bytes(damage)
    with pytest.raises(IntegrityError, match=r"trace.parquet` is not what `build` wrote"):
        read_replay(candidate, candidate.plan())
