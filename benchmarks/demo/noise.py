"""How often an equal candidate passes the demo's gate on this machine: pairs of the same candidate, then resampling.

    python benchmarks/demo/noise.py --pairs 12     # about five minutes; start other work beside it for a busy machine

Prints the standard deviation of the log ratios of each gated metric and the share of passes over all draws of as many
pairs as the profile looks at.
"""

import argparse
import tempfile
from itertools import combinations
from pathlib import Path

import psutil

from trtgate.commands.steps import candidate_arm
from trtgate.console import Console, table
from trtgate.evidence.canary import Comparison, measure_pairs
from trtgate.evidence.ledger import Ledger, LedgerHead
from trtgate.profile import Profile
from trtgate.releases.assemble import assemble, read_replay
from trtgate.releases.inputs import read_inputs
from trtgate.verdicts.judge import judge
from trtgate.verdicts.validity import split_pairs

PROFILE = Path(__file__).resolve().parents[2] / "profiles" / "reference-tiny.yaml"


def main() -> None:
    """Measure, resample, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=12)
    wanted = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as folder:
        ledger = measure(Path(folder), wanted)
    size = ledger.head.looks[-1]
    valid = split_pairs(ledger).valid
    print(f"{wanted - len(valid)} of {wanted} pairs were invalid; a canary replaces up to three")
    ledger = ledger.model_copy(update={"pairs": valid})
    draws = [judge(pick(ledger, places)) for places in combinations(range(len(valid)), size)]
    passed = sum(verdict.result == "pass" for verdict in draws)
    whole = judge(ledger.model_copy(update={"head": ledger.head.model_copy(update={"looks": (len(valid),)})}))
    rows = [
        (m.name, f"{m.ratio:.3f}", f"{m.sd:.3f}", f"{m.limit_ratio:.2f}")
        for m in whole.metrics
        if m.sd is not None
    ]
    print(table(("metric", "ratio A/A", "sd of ln ratio", "limit"), rows))
    print(
        f"{passed} of {len(draws)} draws of {size} pairs out of {len(valid)} pass ({passed / len(draws):.2%})"
    )
    reasons = {verdict.reason for verdict in draws if verdict.result != "pass"}
    print("\n".join(sorted(reasons)[:5]))


def measure(folder: Path, pairs: int) -> Ledger:
    """Pairs of one candidate against itself."""
    profile = Profile.load(PROFILE)
    candidate, plan = assemble(read_inputs(profile, None, None, None), "tuned", folder / "c", ())
    arm = candidate_arm(candidate, plan, profile)
    head = LedgerHead(
        name=profile.name,
        candidate_sha256=plan.digest,
        baseline="the same",
        baseline_sha256=plan.digest,
        gate=profile.gate,
        looks=profile.canary.looks,
        max_send_lateness_ms=profile.canary.max_send_lateness_ms,
    )
    baseline = type(arm)("baseline", "the same", profile, arm.config, arm.config_folder, arm.sha256)
    comparison = Comparison(
        arm, baseline, read_replay(candidate, plan), folder / "logs", folder / "ledger.jsonl"
    )

    def enough(ledger: Ledger) -> bool:
        print(f"{len(ledger.pairs)} of {pairs} pairs, load average {psutil.getloadavg()[0]:.1f}", flush=True)
        return len(ledger.pairs) >= pairs

    return measure_pairs(comparison, Ledger(head=head), enough, Console(quiet=True))


def pick(ledger: Ledger, places: tuple[int, ...]) -> Ledger:
    """The ledger as if only these pairs had been measured."""
    return ledger.model_copy(update={"pairs": tuple(ledger.pairs[place] for place in places)})


if __name__ == "__main__":
    main()
