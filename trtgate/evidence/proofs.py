"""From steps and answers to the proof of each bucket; pure functions, nothing is started here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from trtgate.evidence.answers import count_wrong
from trtgate.evidence.report import BucketProof, Kind, Probe
from trtgate.evidence.staircase import Visit
from trtgate.loads.base import Answer
from trtgate.profile import Warmup
from trtgate.runtimes.base import Grids, Step

SHORTEST_STEP_MS = 0.2  # tens of kernels, even replayed, take longer
PIECEWISE = "piecewise graph"  # a decode step in a token graph replays no decode graph


@dataclass(frozen=True, slots=True, eq=False)
class Visited:
    """A visit with what came of it: the answers, in the order of its asks, and the steps that the runtime ran."""

    visit: Visit
    answers: tuple[Answer, ...]
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """How many answers could be compared with those of the eager start, and how many differ."""

    checked: int
    wrong: int

    def plus(self, other: "Compared") -> "Compared":
        """Both together."""
        return Compared(self.checked + other.checked, self.wrong + other.wrong)


def every_bucket(grids: Grids) -> list[tuple[Kind, int]]:
    """All buckets that must be proven, as (kind, size)."""
    decode: list[tuple[Kind, int]] = [("decode", size) for size in grids.decode]
    return [*decode, *(("tokens", size) for size in grids.tokens)]


def all_settled(grids: Grids, steps: Sequence[Step], settings: Warmup) -> bool:
    """Whether every bucket was hit and is stable, so that no further round is needed."""
    return all(_settled(hits_of(steps, kind, bucket), settings) for kind, bucket in every_bucket(grids))


def hits_of(steps: Iterable[Step], kind: Kind, bucket: int) -> list[Step]:
    """The steps that replayed this bucket."""
    return [
        step
        for step in steps
        if step.kind == kind and step.bucket == bucket and step.replayed and step.reason != PIECEWISE
    ]


def drift(times_ms: Sequence[float]) -> float | None:
    """How far the later half of the visits, the first left out, is above the earlier half; None below five visits."""
    warm = times_ms[1:]
    if len(warm) < 4:
        return None
    half = len(warm) // 2
    return median(warm[half:]) / median(warm[:half]) - 1


def compare_tokens(
    references: Sequence[Visited], visited: Sequence[Visited], buckets: Sequence[int], tolerance: float
) -> dict[int, Compared]:
    """Per token bucket, the answers of the visits in which it was replayed."""
    found = dict.fromkeys(buckets, Compared(0, 0))
    for reference, one in zip(references, visited, strict=True):
        result = Compared(*count_wrong(reference.answers, one.answers, tolerance))
        for bucket in buckets:
            if hits_of(one.steps, "tokens", bucket):
                found[bucket] = found[bucket].plus(result)
    return found


def prove(
    key: tuple[Kind, int], steps: Sequence[Step], captured: Grids, compared: Compared, settings: Warmup
) -> BucketProof:
    """The proof of one bucket from all steps of the warm-up."""
    kind, bucket = key
    hits = hits_of(steps, kind, bucket)
    times = times_of(hits)
    drifted = drift(times)
    was_captured = _captured(captured, kind, bucket)
    predicted = bool(hits) and all(step.predicted for step in hits)
    why = []
    if was_captured is False:
        why.append("not captured")
    if not hits:
        why.append("never replayed")
    elif predicted and was_captured is None:
        why.append("neither its capture nor its replay was reported")
    if drifted is not None and drifted > settings.stable_within:
        why.append(f"not stable, {drifted:+.0%}")
    if compared.wrong:
        why.append(f"{compared.wrong} of {compared.checked} answers differ from eager")
    if not compared.checked and settings.require_answers:
        why.append("no answer could be compared with eager")
    return BucketProof(
        kind=kind,
        bucket=bucket,
        captured=was_captured,
        hits=len(hits),
        cold_ms=times[0] if times else None,
        median_ms=round(median(times[1:]), 4) if len(times) > 1 else None,
        drift=None if drifted is None else round(drifted, 4),
        answers_checked=compared.checked,
        answers_wrong=compared.wrong,
        valid=not why,
        why=", ".join(why),
        predicted=predicted,
    )


def conclusion(proofs: Sequence[BucketProof]) -> str:
    """What is shown of buckets that are all valid, and for how many of them a part of the proof is missing."""
    if not proofs:
        return "there is no bucket to prove: every step runs eager"
    counts = {
        "captured": sum(proof.captured is None for proof in proofs),
        "hit": sum(proof.predicted for proof in proofs),
        "stable": sum(proof.drift is None for proof in proofs),
        "right": sum(not proof.answers_checked for proof in proofs),
    }
    shown = [word for word, unknown in counts.items() if not unknown]
    listed = ", ".join(shown[:-1]) + (" and " if len(shown) > 1 else "") + "".join(shown[-1:])
    text = f"all {len(proofs)} buckets {listed or 'visited'}"
    missing = [
        f"{words} for {counts[word]}"
        for word, words in (
            ("captured", "the log names no capture"),
            ("hit", "hits follow from sizes and were not reported"),
            ("stable", "too few timed visits to tell stability"),
            ("right", "no answer could be compared, correctness unknown"),
        )
        if counts[word]
    ]
    return "; ".join([text, *missing])


def probe_above(grids: Grids, steps: Sequence[Step]) -> tuple[Probe, ...]:
    """What the runtime does with the smallest visited size above the largest bucket of each kind."""
    tops: tuple[tuple[Kind, int], ...] = (
        ("decode", max(grids.decode, default=0)),
        ("tokens", max(grids.tokens, default=0)),
    )
    found = (_probe(kind, top, steps) for kind, top in tops if top)
    return tuple(probe for probe in found if probe is not None)


def times_of(steps: Iterable[Step]) -> list[float]:
    """The step times that the runtime reported, in order."""
    return [step.step_ms for step in steps if step.step_ms is not None]


def implausible(steps: Iterable[Step]) -> str | None:
    """A sentence where the reported times are too short to be those of steps; None where they can be."""
    times = times_of(steps)
    if not times or median(times) >= SHORTEST_STEP_MS:
        return None
    return (
        f"step times of {median(times):.2f} ms (median) are too short for a step: with asynchronous scheduling the "
        "runtime times only its scheduler, so step times say nothing here"
    )


def _settled(hits: Sequence[Step], settings: Warmup) -> bool:
    drifted = drift(times_of(hits))
    return bool(hits) and (drifted is None or drifted <= settings.stable_within)


def _captured(captured: Grids, kind: Kind, bucket: int) -> bool | None:
    if not captured.decode and not captured.tokens:
        return None
    return bucket in (captured.decode if kind == "decode" else captured.tokens)


def _probe(kind: Kind, top: int, steps: Sequence[Step]) -> Probe | None:
    above = [step for step in steps if step.kind == kind and step.size > top]
    if not above:
        return None
    size = min(step.size for step in above)
    seen = [step for step in above if step.size == size]
    times = times_of(seen)
    return Probe(
        kind=kind,
        size=size,
        steps=len(seen),
        replayed=sum(bool(step.replayed) for step in seen),
        median_ms=round(median(times), 4) if times else None,
    )
