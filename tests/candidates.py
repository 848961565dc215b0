"""Candidates for tests: a small profile, a real plan from the shipped trace, and evidence made up around it."""

from pathlib import Path

import yaml

from tests.verdicts import ledgers
from trtgate.evidence.environment import Platform
from trtgate.evidence.ledger import Ledger
from trtgate.evidence.report import BucketProof, WarmupReport
from trtgate.profile import Profile
from trtgate.releases.assemble import assemble
from trtgate.releases.candidate import LEDGER, VERDICT, WARMUP, Candidate
from trtgate.releases.inputs import read_inputs
from trtgate.verdicts.judge import judge

TRACE = Path(__file__).parent / "data" / "traces" / "azure-conversation.csv"
WIDE = {"margin": 1e30}  # so that no result depends on time

SMALL = {
    "name": "small",
    "model": {"path": "tiny", "dtype": "float32", "vocab_size": 320},
    "runtime": {"kind": "reference", "progress_deadline_s": 60, "stop_deadline_s": 10},
    "limits": {"max_batch_size": 4, "max_num_tokens": 64, "max_seq_len": 96},
    "traffic": {"trace": str(TRACE), "length_scale": 0.02, "speed_up": 20.0},
    "grid": {
        "device": "cpu",
        "max_decode_graphs": 3,
        "max_token_graphs": 2,
        "tolerance": 0.0,
        "pinned_decode": [4],
    },
    "warmup": {"repeat": 3, "stable_within": 1000.0, "answer_tokens": 4},
    "canary": {
        "window_s": 1.0,
        "looks": [2],
        "warm_requests": 2,
        "max_send_lateness_ms": 60_000,
        "selfcheck": False,
    },
    "gate": {
        "metrics": [{"metric": "ttft_ms", "quantile": "p50", **WIDE}],  # never 0: gaps are, on a busy machine
        "max_fallback_ratio": 1.0,
        "max_memory_increase": 1.0,
        "max_fallback_increase": 1.0,
    },
}


def small_profile(**changes: object) -> Profile:
    """The small profile with groups replaced or extended."""
    data = {
        key: {**value, **changes[key]}
        if key in changes and isinstance(value, dict)
        else changes.get(key, value)
        for key, value in SMALL.items()
    }
    return Profile.model_validate(data)


def write_profile(folder: Path, **changes: object) -> Path:
    """The same as a YAML file."""
    path = folder / "profile.yaml"
    path.write_text(yaml.safe_dump(small_profile(**changes).model_dump(mode="json")))
    return path


def built(folder: Path, **changes: object) -> Candidate:
    """A candidate folder with its plan."""
    inputs = read_inputs(small_profile(**changes), None, None, None)
    return assemble(inputs, "tuned", folder, ())[0]


def judged(folder: Path, *, slower: float = 1.0, **changes: object) -> Candidate:
    """A candidate folder with warm-up, ledger and verdict; `slower` multiplies the candidate's latencies."""
    candidate = built(folder, **changes)
    warmup_of(candidate).write(candidate.path(WARMUP))
    ledger = ledger_of(candidate, slower)
    ledger.write(candidate.path(LEDGER))
    judge(ledger).write(candidate.path(VERDICT))
    return candidate


def ledger_of(candidate: Candidate, slower: float) -> Ledger:
    """Six equal pairs that belong to the candidate's plan."""
    made = ledgers.ledger([0.0] * 6, ledgers.gate(ledgers.TTFT), looks=(6,))
    head = made.head.model_copy(update={"name": "small", "candidate_sha256": candidate.plan().digest})
    return ledgers.scaled(made.model_copy(update={"head": head}), slower)


def platform(**changes: object) -> Platform:
    """A machine without a GPU."""
    fields = {
        "driver": None,
        "cuda_driver": None,
        "gpus": (),
        "gpu_note": "no NVIDIA driver",
        "kernel": "6.1",
        "machine": "x86_64",
        "cpu": "some cpu",
        "cpu_count": 2,
        "memory_bytes": 1 << 34,
        "container": None,
        "python": "3.11.7",
        "trtgate": "0.1.0",
        "packages": {"torch": "2.13.0"},
    }
    return Platform.model_validate(fields | changes)


def warmup_of(candidate: Candidate, *, valid: bool = True) -> WarmupReport:
    """A report in which every bucket is valid, or none is."""
    plan = candidate.plan()
    proofs = tuple(
        BucketProof(
            kind=kind,
            bucket=bucket,
            captured=True,
            hits=3,
            cold_ms=2.0,
            median_ms=1.0,
            drift=None,
            answers_checked=1,
            answers_wrong=int(not valid),
            valid=valid,
            why="" if valid else "1 of 1 answers differ from eager",
        )
        for kind, bucket in plan.buckets
    )
    return WarmupReport(
        plan_sha256=plan.digest,
        started="2026-01-01T00:00:00+00:00",
        runtime_version="1.2.0",
        platform=platform(),
        phases_ms={"process": 1.0, "ready": 1000.0},
        memory_bytes=1_000_000,
        kv_tokens=1000,
        sequences=10,
        requested_decode=plan.config.decode_buckets,
        requested_tokens=plan.config.token_buckets,
        captured_decode=plan.effective_decode,
        captured_tokens=plan.effective_tokens,
        buckets=proofs,
        probes=(),
        rounds=1,
        answers_compared_with="eager",
        logprob_tolerance=0.0,
        effective={"max_batch_size": 4},
        findings=(),
        passed=valid,
        reason="all buckets valid" if valid else "decode 1: 1 of 1 answers differ from eager",
    )
