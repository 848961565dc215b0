"""Measures what a step costs: the runtime started eager, then with a dense grid, every size visited in random order."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trtgate.console import Console
from trtgate.errors import InvalidMeasurementError, RuntimeFailedError
from trtgate.evidence.arm import Arm, rendered_arm, started, target_of
from trtgate.evidence.curves import Mode, Point, Seen, curve_of, exact_times, noise, points_of
from trtgate.evidence.environment import Platform
from trtgate.evidence.proofs import implausible
from trtgate.evidence.staircase import DEFAULT_VOCAB
from trtgate.evidence.startup import Reading, read_capture_s, read_graph_memory, read_start
from trtgate.evidence.sweep import (
    KINDS,
    Ceilings,
    Key,
    ceilings_of,
    due,
    joined,
    keys_of,
    log_spaced,
    prompts,
    rounds_of,
    wave,
    within,
)
from trtgate.loads.base import Ask
from trtgate.loads.run import run_load
from trtgate.plans.config import config_for
from trtgate.plans.costs import Costs
from trtgate.plans.plan import write_files
from trtgate.profile import Profile
from trtgate.record import sha256
from trtgate.runtimes import runtime_for
from trtgate.runtimes.base import Grids, Kind
from trtgate.runtimes.process import Server
from trtgate.runtimes.stats import Poller


@dataclass(frozen=True, slots=True)
class Sweep:
    """How much is measured: sizes of each kind, visits of each that count, and the seed of their order."""

    points: int = 16
    repeat: int = 3
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where files go and what is known before: the machine, and the KV cache of a token by the model's shape."""

    folder: Path
    platform: Platform
    kv_bytes_per_token: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """The costs, the points behind them by kind and mode, and what the figures cannot show."""

    costs: Costs
    points: Mapping[tuple[Kind, Mode], tuple[Point, ...]]
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """One start: the sizes that were to be visited, the visits, and what the start itself showed."""

    sizes: Grids
    seen: tuple[Seen, ...]
    reading: Reading


def calibrate(profile: Profile, sweep: Sweep, place: Place, console: Console) -> Calibration:
    """Start the runtime twice and measure; sizes that were never met exactly are left out and said.

    Raises `RuntimeFailedError` where the runtime fails, `InvalidMeasurementError` where too few sizes were met.
    """
    ceilings = ceilings_of(profile)
    asked = Grids(log_spaced(ceilings.decode, sweep.points), log_spaced(ceilings.tokens, sweep.points))
    dense = dense_arm(profile, asked, place.folder / "dense")
    grids = within(dense.runtime.effective_grids(dense.config, dense.version)[0], ceilings)
    plain = rendered_arm(profile, "eager", "eager", place.folder / "eager")
    logs = place.folder / "logs"
    eager = _Start(plain, "eager", joined(asked, grids), sweep, logs, console).measure()
    replay = _Start(dense, "replay", grids, sweep, logs, console).measure()
    return conclude(profile, ceilings, eager, replay, place)


def dense_arm(profile: Profile, grids: Grids, folder: Path) -> Arm:
    """An arm that captures these sizes, its configuration written into `folder`."""
    config = config_for(profile, "tuned", grids.decode, grids.tokens)
    files = runtime_for(profile.runtime.kind).render(config, profile.runtime.version)
    identity = sha256(f"{profile.digest} {sorted(write_files(folder, files).items())}".encode())
    return Arm("candidate", "dense grid", profile, config, folder, identity)


@dataclass(frozen=True, slots=True)
class _Start:
    """One start of the runtime with the sizes to visit."""

    arm: Arm
    mode: Mode
    sizes: Grids
    sweep: Sweep
    logs: Path
    console: Console

    def measure(self) -> Measured:
        arm = self.arm
        grids = arm.runtime.effective_grids(arm.config, arm.version)[0]
        self.console.step(f"{arm.title}: starting")
        with (
            started(arm, self.logs / f"{self.mode}.log", self.console) as server,
            Poller(server, arm.runtime, grids, arm.config, self.logs / f"{self.mode}-steps.jsonl") as poller,
        ):
            seen = self._visit_all(server, poller)
            for warning in poller.warnings:
                self.console.step(f"warning: {warning}")
            nonsense = implausible(poller.steps_since())
            if nonsense:
                raise InvalidMeasurementError(
                    nonsense, "switch asynchronous scheduling off in `runtime.args`"
                )
            return Measured(self.sizes, tuple(seen), read_start(server, poller.steps_since()))

    def _visit_all(self, server: Server, poller: Poller) -> list[Seen]:
        seen: list[Seen] = []
        hits: Counter[Key] = Counter()
        wanted = self.sweep.repeat + 1  # the first is cold
        for number, order in enumerate(rounds_of(self.sizes, self.sweep.seed)):
            todo = due(order, hits, number, wanted)
            if not todo:
                break
            turn = f"round {number + 1} of {wanted}" if number < wanted else "again"
            self.console.step(f"{self.arm.title}: {turn}, {len(todo)} sizes")
            for place, key in enumerate(todo):
                self.console.progress(f"{self.arm.title}: {place} of {len(todo)} sizes")
                seen.append(self._visit(server, poller, key, number, number - hits[key]))
                hits[key] += bool(seen[-1].steps_ms)
            self.console.progress_done()
        return seen

    def _visit(self, server: Server, poller: Poller, key: Key, number: int, missed: int) -> Seen:
        (kind, size), profile = key, self.arm.profile
        vocab, longest = profile.model.vocab_size or DEFAULT_VOCAB, profile.limits.max_seq_len
        seed = (self.sweep.seed, KINDS.index(kind), size, number)
        decode = kind == "decode"
        asks = wave(size, longest, vocab, seed, missed) if decode else prompts(size, longest, vocab, seed)
        mark = poller.mark()
        _ask(server, profile, asks)
        poller.drain()
        return Seen(kind, size, exact_times(poller.steps_since(mark), kind, size, self.mode))


def _ask(server: Server, profile: Profile, asks: Sequence[Ask]) -> None:
    settings = profile.canary
    answers = run_load(
        target_of(server, profile), asks, timeout_s=settings.request_timeout_s, drain_s=settings.drain_s
    ).answers
    server.raise_if_dead()
    if not any(answer.ok for answer in answers):
        raise RuntimeFailedError(
            f"0 of {len(asks)} requests were answered: {answers[0].error} {answers[0].detail}".rstrip(),
            f"read the runtime's log `{server.log_path}`",
        )


def conclude(
    profile: Profile, ceilings: Ceilings, eager: Measured, replay: Measured, place: Place
) -> Calibration:
    """Curves, graph memory and capture time from both starts."""
    points: dict[tuple[Kind, Mode], tuple[Point, ...]] = {}
    for kind in KINDS:
        points[kind, "eager"] = points_of(eager.seen, kind)
        points[kind, "replay"] = points_of(replay.seen, kind)
    curves = {key: curve_of(found, *key, ceilings.of(key[0])) for key, found in points.items()}
    kv_bytes = replay.reading.kv_bytes_per_token or place.kv_bytes_per_token
    memory = read_graph_memory(
        eager.reading,
        replay.reading,
        replay.sizes,
        kv_bytes_per_token=kv_bytes,
        kv_fraction=profile.limits.kv_memory_fraction,
        on_gpu=bool(place.platform.gpus),
    )
    costs = Costs(
        model=profile.model.path,
        platform=place.platform.title,
        decode_replay=curves["decode", "replay"],
        decode_eager=curves["decode", "eager"],
        token_replay=curves["tokens", "replay"],
        token_eager=curves["tokens", "eager"],
        decode_graph_bytes=memory.decode,
        token_graph_bytes=memory.tokens,
        decode_capture_s=read_capture_s(replay.reading, "decode", replay.sizes),
        token_capture_s=read_capture_s(replay.reading, "tokens", replay.sizes),
        kv_bytes_per_token=kv_bytes,
    )
    noisy = noise([point for found in points.values() for point in found])
    findings = (
        f"graph memory: {memory.source}",
        *([noisy] if noisy else []),
        *_missed(eager, points, "eager"),
        *_missed(replay, points, "replay"),
    )
    return Calibration(costs, points, findings)


def _missed(
    start: Measured, points: Mapping[tuple[Kind, Mode], tuple[Point, ...]], mode: Mode
) -> Iterator[str]:
    for kind in KINDS:
        known = {point.size for point in points[kind, mode]}
        lost = [str(size) for found, size in keys_of(start.sizes) if found == kind and size not in known]
        if lost:
            yield f"left out, no {mode} steps of exactly this size: {kind} {' '.join(lost)}"
