"""Start a candidate, visit every bucket, and prove each: captured, hit, stable and right."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trtgate.console import Console
from trtgate.errors import RuntimeFailedError
from trtgate.evidence.answers import count_wrong
from trtgate.evidence.arm import Arm, started, target_of
from trtgate.evidence.environment import Platform
from trtgate.evidence.proofs import (
    Compared,
    Visited,
    all_settled,
    compare_tokens,
    conclusion,
    every_bucket,
    hits_of,
    implausible,
    probe_above,
    prove,
)
from trtgate.evidence.report import Kind, WarmupReport
from trtgate.evidence.staircase import DEFAULT_VOCAB, Visit, decode_staircase, token_visits
from trtgate.loads.base import Answer, Ask
from trtgate.loads.run import run_load
from trtgate.profile import Profile
from trtgate.runtimes.base import Grids, Step
from trtgate.runtimes.process import Server
from trtgate.runtimes.stats import Poller


@dataclass(frozen=True, slots=True)
class Subject:
    """What is proven, against what, and where its logs go; `sha256` names the plan."""

    arm: Arm
    eager: Arm
    logs: Path
    platform: Platform
    now: str
    model_sha256: str = ""


def warm_up(subject: Subject, console: Console) -> WarmupReport:
    """Prove the arm against the answers of `eager`; a bucket that fails makes a report that did not pass.

    Raises `RuntimeFailedError` where the runtime does not start, dies or leaves all requests unanswered.
    """
    arm = subject.arm
    grids, findings = arm.runtime.effective_grids(arm.config, arm.version)
    visits = plan_visits(arm, grids)
    with started(subject.eager, subject.logs / "eager.log", console) as server:
        console.step("eager start: asking for the answers to compare with")
        references = [Visited(visit, _ask(server, arm.profile, visit.asks, console)) for visit in visits]
    with started(arm, subject.logs / "warmup.log", console) as server:
        proving = _Proving(subject, server, grids, visits, references, console)
        return proving.report([finding.message for finding in findings])


def plan_visits(arm: Arm, grids: Grids) -> tuple[Visit, ...]:
    """The staircase over the decode buckets, then one prompt a token size, within the configured limits."""
    profile, config = arm.profile, arm.config
    vocab = profile.model.vocab_size or DEFAULT_VOCAB
    staircase = decode_staircase(
        grids.decode,
        ceiling=min(config.max_batch_size, config.max_num_tokens // (1 + config.draft_len)),
        repeat=profile.warmup.repeat,
        max_seq_len=config.max_seq_len,
        vocab_size=vocab,
        seed=profile.canary.seed,
    )
    tokens = token_visits(
        grids.tokens,
        ceiling=min(config.max_num_tokens, config.max_batch_size * (config.max_seq_len - 1)),
        max_seq_len=config.max_seq_len,
        answer_tokens=profile.warmup.answer_tokens,
        vocab_size=vocab,
        seed=profile.canary.seed + 1,
    )
    return (staircase, *tokens)


@dataclass(frozen=True, slots=True)
class _Proving:
    """One running candidate with the visits to make and the answers to expect."""

    subject: Subject
    server: Server
    grids: Grids
    visits: Sequence[Visit]
    references: Sequence[Visited]
    console: Console
    lost: list[str] = field(default_factory=list)  # what the reader of statistics missed

    def report(self, findings: Sequence[str]) -> WarmupReport:
        arm, server = self.subject.arm, self.server
        settings = arm.profile.warmup
        rounds = self._visit()
        compared = self._compare(rounds)
        steps = [step for visited in rounds for one in visited for step in one.steps]
        buckets = tuple(
            prove(key, steps, server.captured, compared[key], settings) for key in every_bucket(self.grids)
        )
        wrong = [f"{proof.title}: {proof.why}" for proof in buckets if not proof.valid]
        wrong += filter(None, [unanswered(rounds, arm.profile.gate.max_error_ratio)])
        capacity = max((step.kv_tokens for step in steps if step.kv_tokens), default=None)
        return WarmupReport(
            plan_sha256=arm.sha256,
            model_sha256=self.subject.model_sha256,
            started=self.subject.now,
            runtime_version=server.version or arm.version,
            platform=self.subject.platform,
            phases_ms={name: round(value, 1) for name, value in server.phases.items()},
            memory_bytes=server.memory_bytes(),
            kv_tokens=capacity,
            sequences=None if capacity is None else capacity // arm.config.max_seq_len,
            requested_decode=arm.config.decode_buckets,
            requested_tokens=arm.config.token_buckets,
            captured_decode=server.captured.decode,
            captured_tokens=server.captured.tokens,
            buckets=buckets,
            probes=probe_above(self.grids, steps),
            rounds=len(rounds),
            answers_compared_with=self.subject.eager.title,
            logprob_tolerance=settings.logprob_tolerance,
            effective={key: value for key, value in server.info.items() if _is_scalar(value)},
            findings=(*findings, *self._findings(steps)),
            passed=not wrong,
            reason="; ".join(wrong) or conclusion(buckets),
        )

    def _findings(self, steps: Sequence[Step]) -> list[str]:
        """What the server or its statistics showed besides the buckets."""
        found = [*self.lost, *self.server.warnings, *filter(None, [implausible(steps)])]
        asked, version = self.subject.arm.version, self.server.version
        if version is None:
            found.append(f"the runtime does not report its version; `{asked}` is what the profile says")
        elif not version.startswith(asked) and self.subject.arm.runtime.kind != "reference":
            found.append(f"the runtime is version `{version}`, the profile says `{asked}`")
        return found

    def _visit(self) -> list[list[Visited]]:
        arm = self.subject.arm
        settings = arm.profile.warmup
        rounds: list[list[Visited]] = []
        path = self.subject.logs / "warmup-steps.jsonl"
        with Poller(self.server, arm.runtime, self.grids, arm.config, path) as poller:
            for number in range(1, settings.max_rounds + 1):
                self.console.step(f"warm-up round {number}: {len(every_bucket(self.grids))} buckets")
                rounds.append([self._visit_once(visit, poller) for visit in self.visits])
                steps: list[Step] = poller.steps_since()
                if all_settled(self.grids, steps, settings):
                    break
            self.lost.extend(poller.warnings)
        return rounds

    def _visit_once(self, visit: Visit, poller: Poller) -> Visited:
        mark = poller.mark()
        answers = _ask(self.server, self.subject.arm.profile, visit.asks, self.console)
        poller.drain()
        return Visited(visit, answers, tuple(poller.steps_since(mark)))

    def _compare(self, rounds: Sequence[Sequence[Visited]]) -> dict[tuple[Kind, int], Compared]:
        """The answers of every round, since a bucket may be hit in a later one only."""
        tolerance = self.subject.arm.profile.warmup.logprob_tolerance
        found = dict.fromkeys(every_bucket(self.grids), Compared(0, 0))
        for visited in rounds:
            decode = self._compare_decode(visited[0], tolerance)
            tokens = compare_tokens(self.references[1:], visited[1:], self.grids.tokens, tolerance)
            for size, result in decode.items():
                found["decode", size] = found["decode", size].plus(result)
            for size, result in tokens.items():
                found["tokens", size] = found["tokens", size].plus(result)
        return found

    def _compare_decode(self, visited: Visited, tolerance: float) -> dict[int, Compared]:
        """One staircase checks all decode buckets it hit; where it found a difference, each is visited alone.

        Alone means by as many requests as are padded the most on their way to it, so that the wrong one has a name.
        """
        reference, buckets = self.references[0], self.grids.decode
        checked, wrong = count_wrong(reference.answers, visited.answers, tolerance)
        if wrong == 0 or not buckets:
            hit = [bucket for bucket in buckets if hits_of(visited.steps, "decode", bucket)]
            return {bucket: Compared(min(bucket, checked), 0) for bucket in hit}
        found = {}
        for below, bucket in zip((0, *buckets), buckets, strict=False):
            asks = visited.visit.asks[: below + 1]
            shortest = min(ask.max_tokens for ask in asks)
            wave = [replace(ask, max_tokens=shortest) for ask in asks]
            answers = _ask(self.server, self.subject.arm.profile, wave, self.console)
            found[bucket] = Compared(*count_wrong(reference.answers, answers, tolerance))
        if not any(one.wrong for one in found.values()):
            found[buckets[-1]] = Compared(checked, wrong)
        return found


def _ask(server: Server, profile: Profile, asks: Sequence[Ask], console: Console) -> tuple[Answer, ...]:
    settings = profile.canary
    wanted = 1 if profile.warmup.logprob_tolerance > 0 else None
    prepared = [replace(ask, logprobs=wanted) for ask in asks]
    answers = run_load(
        target_of(server, profile), prepared, timeout_s=settings.request_timeout_s, drain_s=settings.drain_s
    ).answers
    server.raise_if_dead()
    failed = [answer for answer in answers if not answer.ok]
    if failed:
        kinds = ", ".join(sorted({answer.error or "" for answer in failed}))
        console.step(f"warning: {len(failed)} of {len(asks)} warm-up requests failed: {kinds}")
    if len(failed) == len(asks):
        raise RuntimeFailedError(
            f"0 of {len(asks)} warm-up requests were answered: {failed[0].error}",
            f"read the runtime's log `{server.log_path}`",
        )
    return answers


def unanswered(rounds: Sequence[Sequence[Visited]], limit: float) -> str | None:
    """A sentence where more warm-up requests failed than the gate allows."""
    answers = [answer for visited in rounds for one in visited for answer in one.answers]
    failed = sum(not answer.ok for answer in answers)
    return f"{failed} of {len(answers)} warm-up requests failed" if failed > limit * len(answers) else None


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
