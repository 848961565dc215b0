"""The whole way on the embedded runtime: real processes, real HTTP, real files; the margins make time irrelevant."""

import json
from pathlib import Path

import pytest

from tests.candidates import ledger_of, warmup_of, write_profile
from tests.commands.conftest import Trtgate
from trtgate.evidence.ledger import Ledger
from trtgate.releases.candidate import LEDGER, VERDICT, WARMUP, Candidate, open_candidate
from trtgate.releases.seal import seal
from trtgate.releases.store import Store
from trtgate.verdicts.judge import judge

pytestmark = pytest.mark.timeout(60)  # starts real runtimes


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return write_profile(tmp_path, canary={"window_s": 0.6})


@pytest.mark.tools
@pytest.mark.timeout(180)
def test_build_warmup_canary_release_gate_and_rollback(
    trtgate: Trtgate, profile: Path, tmp_path: Path
) -> None:
    store, first, second = tmp_path / "r", tmp_path / "first", tmp_path / "second"
    assert trtgate("build", profile, "--out", first).code == 0
    assert trtgate("warmup", first).code == 0
    canary = trtgate("canary", first, "--store", store)
    assert (canary.code, "PASS" in canary.out) == (0, True)
    assert trtgate("release", first, "--store", store).code == 0
    assert json.loads((first / "verdict.json").read_text())["baseline"] == "runtime default"

    gate = trtgate("gate", profile, "--out", second, "--store", store, "--set", "grid.max_decode_graphs=2")
    assert gate.code == 0
    assert json.loads((second / "verdict.json").read_text())["baseline"].startswith("release ")
    live = (store / "small" / "current").resolve()
    back = trtgate("rollback", "small", "--store", store)
    assert (back.code, "is now in service" in back.out) == (0, True)
    assert (store / "small" / "current").resolve() != live
    listed = trtgate("release", "list", "small", "--store", store).out
    assert ("in service" in listed, "gone back from" in listed) == (True, True)


def test_a_candidate_is_built_and_every_bucket_of_it_proven(
    trtgate: Trtgate, profile: Path, tmp_path: Path
) -> None:
    assert trtgate("build", profile, "--out", tmp_path / "c").code == 0
    outcome = trtgate("warmup", tmp_path / "c")
    report = open_candidate(tmp_path / "c").warmup()
    assert (outcome.code, report.passed) == (0, True)
    assert {(bucket.kind, bucket.bucket) for bucket in report.buckets} == set(
        open_candidate(tmp_path / "c").plan().buckets
    )


def test_a_bucket_with_wrong_answers_is_refused_with_its_name(
    trtgate: Trtgate, profile: Path, tmp_path: Path
) -> None:
    fault = "runtime.args=[--fault, 'wrong-output:4']"
    outcome = trtgate("gate", profile, "--out", tmp_path / "c", "--store", tmp_path / "r", "--set", fault)
    report = json.loads((tmp_path / "c" / "warmup.json").read_text())
    wrong = [bucket["bucket"] for bucket in report["buckets"] if not bucket["valid"]]
    assert (outcome.code, wrong) == (10, [4])
    assert "decode 4: " in outcome.out
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("fault", "check"), [("error-rate:0.5", "error ratio"), ("crash-after:20", "runtime failures")]
)
def test_a_faulty_candidate_is_refused_by_the_canary(
    trtgate: Trtgate, profile: Path, tmp_path: Path, fault: str, check: str
) -> None:
    sound = tmp_path / "sound"
    candidate = open_candidate(built_with(trtgate, profile, sound))
    store = Store(tmp_path / "r", "small")
    seal_without_canary(candidate, store)
    faulty = open_candidate(
        built_with(trtgate, profile, tmp_path / "c", f"runtime.args=[--fault, '{fault}']")
    )
    warmup_of(faulty).write(faulty.path(WARMUP))
    outcome = trtgate("canary", faulty.folder, "--store", store.root)
    failed = [finding.check for finding in faulty.verdict().findings if finding.state == "failed"]
    assert (outcome.code, check in failed) == (10, True)


def built_with(trtgate: Trtgate, profile: Path, folder: Path, *settings: str) -> Path:
    """A candidate folder made by the command."""
    chosen = [part for setting in settings for part in ("--set", setting)]
    assert trtgate("build", profile, "--out", folder, *chosen).code == 0
    return folder


def seal_without_canary(candidate: Candidate, store: Store) -> None:
    """Put a candidate in service on evidence that was made up."""
    warmup_of(candidate).write(candidate.path(WARMUP))
    ledger = ledger_of(candidate, 1.0)
    ledger.write(candidate.path(LEDGER))
    judge(ledger).write(candidate.path(VERDICT))
    store.switch("promote", seal(candidate, store).release_id, "made up")


def test_the_canary_counts_the_work_of_both_arms_and_judge_repeats_its_verdict(
    trtgate: Trtgate, profile: Path, tmp_path: Path
) -> None:
    folder = built_with(trtgate, profile, tmp_path / "c")
    warmup_of(open_candidate(folder)).write(folder / WARMUP)
    assert trtgate("canary", folder, "--store", tmp_path / "r", "--baseline", "eager").code == 0
    pairs = Ledger.read(folder / "ledger.jsonl").pairs
    assert len(pairs) >= 2  # more where a busy machine made one of them invalid
    for place, pair in enumerate(pairs):
        assert pair.order == ("baseline-first", "candidate-first")[place % 2]
        candidate = pair.candidate
        assert candidate is not None
        assert candidate.work_sha256 == pair.baseline.work_sha256
        assert (candidate.checked_answers, candidate.wrong_answers) == (candidate.requests, 0)
        assert candidate.graphs is not None
        assert candidate.graphs.decode_replayed == candidate.graphs.decode_steps > 0
        assert pair.baseline.graphs is not None
        assert pair.baseline.graphs.decode_replayed == 0
    before = (folder / "verdict.json").read_bytes()
    assert trtgate("judge", folder).code == 0
    assert (folder / "verdict.json").read_bytes() == before


def test_json_prints_the_record_that_was_written(trtgate: Trtgate, profile: Path, tmp_path: Path) -> None:
    outcome = trtgate("build", profile, "--out", tmp_path / "c", "--json", "--quiet")
    assert json.loads(outcome.out) == json.loads((tmp_path / "c" / "plan.json").read_text())
    assert outcome.err == ""


def test_build_draws_costs_and_buckets_of_both_grids(trtgate: Trtgate, profile: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert trtgate("build", profile, "--out", tmp_path / "c", "--plot", tmp_path / "plan.svg").code == 0
    for kind in ("decode", "tokens"):
        assert "<svg" in (tmp_path / f"plan-{kind}.svg").read_text()
