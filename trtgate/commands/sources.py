"""The files that `trtgate histogram` is given, each turned into steps by size, and what the user said about them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trtgate.errors import UsageError
from trtgate.plans.cluster import Part, histogram_of, part_histogram
from trtgate.plans.costs import DEVICES, MODELS, Costs, prior_costs
from trtgate.plans.histogram import Histogram, Limits, from_ranges, from_steps, merge
from trtgate.plans.simulate import simulate
from trtgate.profile import Profile
from trtgate.releases.inputs import BEHIND, kv_budget, limits_of, read_costs, scale_trace
from trtgate.traces import READERS, detect, read_any, stream_steps
from trtgate.traces.base import Ranges, ReadOptions, Streaming, Trace

PRIOR = ("8b", "h200")  # whose costs stand in where no profile and no costs are given
NEEDED = ("max_batch_size", "max_num_tokens", "max_seq_len")
LONG_ANSWER_S = 30.0  # draining longer than this and a share of the span is more than a last long answer
UNKNOWN = Limits(max_batch_size=1, max_num_tokens=1, max_seq_len=2)


@dataclass(frozen=True, slots=True)
class Rules:
    """How requests become steps; while limits are `missing`, only iterations and buckets can be read.

    `ceiling` ends the open bucket of a bucketed series; `concurrency` is how many of a length list run at once.
    """

    limits: Limits
    costs: Costs
    costs_title: str
    speed_up: float = 1.0
    missing: tuple[str, ...] = ()
    ceiling: int | None = None
    concurrency: int | None = None
    profile: Profile | None = None


def rules_of(
    profile_path: Path | None,
    given: dict[str, Any],
    costs_path: Path | None,
    *,
    chunked: bool,
    any_platform: bool = False,
) -> Rules:
    """Rules from a profile or from options; options (those not None in `given`) win over the profile."""
    given = {name: value for name, value in given.items() if value is not None}
    concurrency = given.pop("concurrency", None)
    if profile_path is not None:
        group = {"replicas": "traffic", "speed_up": "traffic"}
        settings = tuple(f"{group.get(name, 'limits')}.{name}={value}" for name, value in given.items())
        profile = Profile.load(profile_path).with_settings(settings)
        costs = read_costs(profile, costs_path, any_platform=any_platform)
        return _rules_of_profile(profile, costs, _title(costs, costs_path), concurrency, chunked=chunked)
    missing = tuple(name for name in NEEDED if name not in given)
    if concurrency is not None:
        missing = tuple(name for name in missing if name != "max_batch_size")
        given.setdefault("max_batch_size", concurrency)
    speed_up = given.pop("speed_up", 1.0)
    limits = UNKNOWN if missing else _limits({**given, "chunked_prefill": chunked})
    costs, title = _costs(costs_path, limits)
    return Rules(limits, costs, title, speed_up, missing, given.get("max_num_tokens"), concurrency)


def source_histogram(rules: Rules, part: Part) -> Histogram:
    """Read one source; requests are scaled as `build` does and simulated, iterations are counted in parts."""
    if "://" in part.source:
        return part_histogram(part)
    path, options = Path(part.source), part.options or ReadOptions()
    reader = READERS.get(part.format or "") or detect(path, plain=options.columns is not None)
    if isinstance(reader, Streaming):
        return _counted(path, part)
    found = read_any(path, format=part.format, options=options)
    if isinstance(found, Trace):
        return _simulated(rules, found, part.source)
    if isinstance(found, Ranges):
        return _bucketed(rules, found, part.source)
    return from_steps(found)


def read_sources(
    sources: Sequence[str],
    rules: Rules,
    options: ReadOptions,
    *,
    word: str | None = None,
    processes: int = 1,
    cluster: str | None = None,
) -> Histogram:
    """The sum over all sources; refuses what has to be simulated while limits are missing."""
    if word is not None and word not in READERS:
        raise UsageError(f"`{word}` is not a format", f"known are {', '.join(READERS)}")
    remote = next((source for source in sources if "://" in source), None)
    if remote is not None:
        _require_limits(rules, remote)
        if rules.profile is not None and rules.profile.traffic.length_scale != 1:
            raise UsageError(f"`{remote}` cannot be read with `traffic.length_scale`", "fetch the file first")
    parts = [Part(source, rules.limits, rules.costs, word, options, rules.speed_up) for source in sources]
    return histogram_of(parts, cluster=cluster, processes=processes, make=partial(source_histogram, rules))


def merge_files(paths: Sequence[str]) -> Histogram:
    """The sum of histograms that were written before."""
    return merge(*(Histogram.read(Path(path)) for path in paths))


def _rules_of_profile(
    profile: Profile, costs: Costs, title: str, concurrency: int | None, *, chunked: bool
) -> Rules:
    limits = limits_of(profile).model_copy(update={"chunked_prefill": chunked})
    return Rules(
        limits,
        costs,
        title,
        profile.traffic.speed_up,
        ceiling=limits.max_num_tokens,
        concurrency=concurrency,
        profile=profile,
    )


def _title(costs: Costs, path: Path | None) -> str:
    basis = f"{costs.decode_replay.basis} of `{costs.model}` on `{costs.platform}`"
    return basis if path is None else f"{basis}, from `{path}`"


def _limits(values: dict[str, Any]) -> Limits:
    if values["max_num_tokens"] < 1 + values.get("draft_len", 0):
        raise UsageError(
            f"`--max-num-tokens {values['max_num_tokens']}` is below the {1 + values['draft_len']} of one request",
            "raise it or lower `--draft-len`",
        )
    return Limits(**values)


def _costs(path: Path | None, limits: Limits) -> tuple[Costs, str]:
    if path is not None:
        costs = Costs.read(path)
        return costs, _title(costs, path)
    model, device = PRIOR
    costs = prior_costs(
        MODELS[model],
        DEVICES[device],
        max_size_decode=limits.max_decode_size,
        max_size_tokens=limits.max_num_tokens,
        model_name=model,
    )
    return costs, f"{_title(costs, None)}; `--profile` or `--costs` names others"


def _require_limits(rules: Rules, source: str) -> None:
    if rules.missing:
        names = ", ".join(f"`--{name.replace('_', '-')}`" for name in rules.missing)
        raise UsageError(
            f"`{source}` holds requests, whose steps depend on {names}", "give them, or `--profile FILE`"
        )


def _counted(path: Path, part: Part) -> Histogram:
    total: Histogram | None = None
    for steps in stream_steps(path, format=part.format, options=part.options):
        found = from_steps(steps)
        total = found if total is None else merge(total, found)
    assert total is not None
    return merge(total)


def _simulated(rules: Rules, trace: Trace, source: str) -> Histogram:
    _require_limits(rules, source)
    limits = rules.limits
    if all(one.time_unit == "none" for one in trace.sources):
        batch = min(rules.concurrency or limits.max_batch_size, limits.max_batch_size)
        limits = limits.model_copy(update={"max_batch_size": batch})
        trace = _noted(trace, f"{batch} requests are under way at any time")
    elif rules.concurrency is not None:
        raise UsageError(
            f"`{source}` has arrival times, which `--concurrency` would contradict",
            "leave it out; `--max-batch-size` limits the batch",
        )
    if rules.profile is not None:
        trace = scale_trace(trace, rules.profile)
        room = kv_budget(rules.profile, rules.costs, trace).tokens(0)
        limits = limits.model_copy(update={"kv_tokens": max(room, limits.max_seq_len)})
    return simulate(trace, limits, rules.costs, speed_up=rules.speed_up)


def _bucketed(rules: Rules, ranges: Ranges, source: str) -> Histogram:
    above = int(ranges.count[np.isinf(ranges.high)].sum())
    if above and rules.ceiling is None:
        raise UsageError(
            f"{above} steps of `{source}` are in its last bucket, which has no upper end",
            "say where it ends with `--max-num-tokens`",
        )
    note = f"`{ranges.metric}` counts all steps, those of decode too, in buckets: sizes are known as ranges"
    noted = replace(ranges, sources=tuple(one.noted(note) for one in ranges.sources))
    return from_ranges(noted, "tokens", rules.ceiling or 1)


def _noted(trace: Trace, note: str) -> Trace:
    return replace(trace, sources=tuple(one.noted(note) for one in trace.sources))


def overload(histogram: Histogram, rules: Rules) -> str | None:
    """A sentence where the simulated replicas could not keep up, so that sizes are those of overload."""
    span_s = max((source.span_s for source in histogram.sources), default=0.0) / rules.speed_up
    if histogram.drain_s is None or span_s == 0 or histogram.drain_s <= LONG_ANSWER_S + BEHIND * span_s:
        return None
    return (
        f"warning: {rules.limits.replicas} replica(s) cannot keep up: the last answer ends "
        f"{histogram.drain_s:.0f} s after the last of {span_s:.0f} s of arrivals"
    )


def dropped_text(dropped: dict[str, int]) -> str:
    """The rows left out, by reason: `3 (2 no output tokens, 1 token count missing)`."""
    total = Counter(dropped).total()
    reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
    return f"{total} ({reasons})" if total else "0"
