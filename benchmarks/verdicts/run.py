"""Error rates of the judge on simulated canaries, against the figures of `release-gate.md` 2.8 and 2.9.

Model of one run: log latency = slot drift + start effect + window effect + AR(1) noise (0.8) + burst factor (5 % of
requests, bursts of 20 requests on average, Pareto sizes); 3,000 requests, p99, margin 10 %. With the same trace both
arms of a pair meet the same bursts. Usage: `python -m benchmarks.verdicts.run [--replicates 2000] [--only TEXT]`.
"""

import argparse
import math
import time
from dataclasses import dataclass, replace

import numba
import numpy as np
from numpy.typing import NDArray

from trtgate.evidence.ledger import Ledger, LedgerHead, Measurement, Pair, Quantiles
from trtgate.profile import Gate, MetricLimit
from trtgate.verdicts.judge import judge, next_step
from trtgate.verdicts.planning import plan_budget

FloatArray = NDArray[np.float64]

REQUESTS = 3000
AR = 0.8
AR_SD = 0.15  # of the noise; chosen with PARETO so that sigma_d is 0.085 (same trace) and 0.156 (not)
PARETO = 6.0
LOOKS = (6, 8, 10, 12)
SHIFTS = (0.0, 0.05, 0.10, 0.20)
P99 = MetricLimit(metric="ttft_ms", quantile="p99", floor=0.0)


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the table: standard deviations as fractions, and how the canary is run."""

    name: str
    start: float = 0.04
    window: float = 0.03
    drift: float = 0.01
    same_trace: bool = True
    restarted: bool = True
    heavy: bool = False
    tail_only: bool = False
    expected: str = ""


CELLS = (
    Cell("typical, same trace", expected="0.0/5.2/94.8  3.0/51.1/46.0  50.5/45.1/4.3  100/0/0"),
    Cell("quiet, same trace", 0.015, 0.01, 0.005, expected="0.0/0.0/100  -  PASS 5.1  100/0/0; 6.2 pairs"),
    Cell("noisy, same trace", 0.08, 0.05, 0.03, expected="1.3/38.5/60.2  -  PASS 4.7  98.3/1.6/0.0; 9.8 pairs"),
    Cell("typical, different traces", same_trace=False, expected="1.8/44.8/53.5 - PASS 5.0 97.3/2.5/0.1; 10.0 pairs"),
    Cell("typical, heavy-tailed starts", heavy=True, expected="0.0/4.3/95.7  -  PASS 4.0  99.7/0.3/0.0; 7.3 pairs"),
    Cell("typical, never restarted", restarted=False, expected="1.4/15/84 8.1/33.9/58.0 27.1/45.2/27.7 78.1/20.2/1.6"),
    Cell("typical, only the tail is slower", tail_only=True, expected="+20 %: FAIL 100"),
)  # fmt: skip


@numba.njit(cache=True)
def _bursts(rng: np.random.Generator, factors: FloatArray, pareto: float) -> None:
    """Fill log factors (requests,): 5 % of the requests stand in bursts of geometric length, mean 20."""
    i, left, size = 0, 0, 0.0
    while i < len(factors):
        if left == 0 and rng.random() < 0.05 / (20 * 0.95):
            left, size = rng.geometric(1 / 20), rng.exponential(1 / pareto)
        factors[i] = size if left > 0 else 0.0
        left = max(left - 1, 0)
        i += 1


@numba.njit(cache=True)
def _noise(rng: np.random.Generator, values: FloatArray, ar: float, sd: float) -> None:
    """Add AR(1) noise of standard deviation `sd` to log latencies (requests,)."""
    state = sd * rng.standard_normal()
    step = sd * math.sqrt(1 - ar * ar)
    for i in range(len(values)):
        values[i] += state
        state = ar * state + step * rng.standard_normal()


def p99_pairs(cell: Cell, shift: float, rng: np.random.Generator, pairs: int = 12) -> FloatArray:
    """Log p99 of both arms, (pairs, 2)."""
    found = np.empty((pairs, 2))
    starts = np.zeros(2)
    for i in range(pairs):
        if i == 0 or cell.restarted:
            draws = rng.standard_t(3, 2) / math.sqrt(3) if cell.heavy else rng.standard_normal(2)
            starts = cell.start * draws
        shared = np.empty(REQUESTS)
        _bursts(rng, shared, PARETO)
        for arm in (0, 1):
            values = shared.copy()
            if arm == 1 and not cell.same_trace:
                _bursts(rng, values, PARETO)
            _noise(rng, values, AR, AR_SD)
            level = starts[arm] + cell.window * rng.standard_normal() + cell.drift * rng.standard_normal()
            found[i, arm] = (
                _p99(values, cell.tail_only and arm == 1, shift) + level + _uniform(cell, arm, shift)
            )
    return found


def _uniform(cell: Cell, arm: int, shift: float) -> float:
    return math.log1p(shift) if arm == 1 and not cell.tail_only else 0.0


def _p99(values: FloatArray, slow_tail: bool, shift: float) -> float:
    if slow_tail:
        values = np.where(values > np.median(values), values + math.log1p(shift), values)
    rank = math.ceil(0.99 * len(values))
    return float(np.partition(values, rank - 1)[rank - 1])


def head(looks: tuple[int, ...]) -> LedgerHead:
    """The policy: one metric, p99 within 10 %, no graph counts needed."""
    gate = Gate(metrics=(P99,), max_fallback_ratio=1.0)
    return LedgerHead(
        name="simulated",
        candidate_sha256="c",
        baseline="simulated",
        baseline_sha256="b",
        gate=gate,
        looks=looks,
        max_send_lateness_ms=50.0,
    )


def to_pairs(logs: FloatArray) -> tuple[Pair, ...]:
    """Ledger pairs from log p99 (pairs, 2), around 100 ms."""
    return tuple(
        Pair.model_construct(
            index=i,
            order="baseline-first" if i % 2 else "candidate-first",
            seed=i,
            segment_s=(0.0, 300.0),
            baseline=_measurement("baseline", float(row[0])),
            candidate=_measurement("candidate", float(row[1])),
        )
        for i, row in enumerate(logs, 1)
    )


def _measurement(arm: str, log_p99: float) -> Measurement:
    value = 100 * math.exp(log_p99)
    quantiles = Quantiles(samples=REQUESTS, p50=value, p95=value, p99=value, maximum=value)
    return Measurement.model_construct(
        arm=arm,
        title=arm,
        started="",
        trace_sha256="t",
        requests=REQUESTS,
        succeeded=REQUESTS,
        quantiles={"ttft_ms": quantiles},
        start_ms={"load": 1.0},
        send_lateness_p99_ms=1.0,
    )


def canary(pairs: tuple[Pair, ...], looks: tuple[int, ...]) -> tuple[str, int]:
    """Run to the end as `trtgate canary` does: the result and the pairs used."""
    for n in looks:
        ledger = Ledger.model_construct(head=head(looks), pairs=pairs[:n])
        if next_step(ledger).action == "stop":
            break
    verdict = judge(ledger)
    return verdict.result, verdict.pairs_valid


def simulate(cell: Cell, shift: float, replicates: int, seed: int) -> tuple[str, float, float]:
    """FAIL / INCONCLUSIVE / PASS in percent, mean pairs, and the standard deviation of d."""
    rng = np.random.default_rng([seed, round(100 * shift), *cell.name.encode()])
    counts = dict.fromkeys(("fail", "inconclusive", "pass", "invalid"), 0)
    used, sds = 0, []
    for _ in range(replicates):
        logs = p99_pairs(cell, shift, rng)
        result, n = canary(to_pairs(logs), LOOKS)
        counts[result] += 1
        used += n
        sds.append(np.var(logs[:, 1] - logs[:, 0], ddof=1))
    shares = "/".join(f"{100 * counts[name] / replicates:.1f}" for name in ("fail", "inconclusive", "pass"))
    return shares, used / replicates, float(np.sqrt(np.mean(sds)))


def print_table(replicates: int, only: str) -> None:
    """The cells of 2.8: FAIL/INCONCLUSIVE/PASS %."""
    print(f"| {replicates} replicates | A/A | +5 % | +10 % | +20 % | pairs A/A | sd of d | release-gate.md |")
    print("|---|---|---|---|---|---|---|---|")
    for cell in CELLS:
        if only not in cell.name:
            continue
        rows = [simulate(cell, shift, replicates, 1) for shift in SHIFTS]
        shares = " | ".join(row[0] for row in rows)
        print(
            f"| {cell.name} | {shares} | {rows[0][1]:.1f} | {rows[0][2]:.3f} | {cell.expected} |", flush=True
        )


def print_naive(replicates: int) -> None:
    """Print how one run each against a fixed threshold of 10 % fares."""
    rng = np.random.default_rng(2)
    cell = replace(CELLS[0])
    shares = []
    for shift in SHIFTS:
        d = [np.diff(p99_pairs(cell, shift, rng, 1))[0, 0] for _ in range(replicates)]
        shares.append(f"{100 * np.mean(np.array(d) > math.log(1.1)):.1f}")
    print(
        f"| one run each, ratio > 1.10: FAIL | {' | '.join(shares)} | 1 | - | 12.4  30.1  49.2  85.1 |",
        flush=True,
    )


def print_budget() -> None:
    """The table of 2.9."""
    print("\n| r | looks 6-12 | pairs | looks 8-20 | pairs | release-gate.md |\n|---|---|---|---|---|---|")
    expected = (
        "100 (6), 100 (8)",
        "99 (7), 100 (9)",
        "90 (8), 99 (10)",
        "60 (10), 83 (14)",
        "41 (10.5), 60 (16)",
    )
    for r, text in zip((0.5, 0.75, 1.0, 1.5, 2.0), expected, strict=True):
        short, long = (plan_budget(r * math.log(1.1), 0.1, looks) for looks in (LOOKS, (8, 12, 16, 20)))
        print(
            f"| {r} | {100 * short.chance:.1f} | {short.mean_pairs:.1f} | {100 * long.chance:.1f} "
            f"| {long.mean_pairs:.1f} | {text} |"
        )


def main() -> None:
    """Print all tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=2000)
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    options = parser.parse_args()
    started = time.perf_counter()
    print_table(options.replicates, options.only)
    print_naive(options.replicates)
    print_budget()
    print(f"\n{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
