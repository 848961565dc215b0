"""From a trace to the steps that a service would run: in-flight batching, simulated exactly, without chance.

An iteration holds every running generation request, and then, first come first served, as much of the waiting
prompts as the token limit leaves. A request is taken when a place in the batch and cache for its whole length
are free (no eviction). The last part of a prompt yields the first token. Time is counted in whole
nanoseconds.
"""

import numpy as np
from numpy.typing import NDArray

from trtgate.errors import UsageError
from trtgate.plans.arrays import Ints, Requests, Room
from trtgate.plans.costs import CostCurve, Costs
from trtgate.plans.histogram import Bins, Histogram, Limits, combine_sources
from trtgate.traces.base import Trace

__all__ = ["Limits", "simulate"]

LONGEST_S = 9e9  # 285 years, the most that 64 bits of nanoseconds hold


def simulate(trace: Trace, limits: Limits, costs: Costs, *, speed_up: float = 1.0) -> Histogram:
    """Both histograms of `trace` under `limits`, over all replicas together.

    Step times are those of a replay at the exact size for decode steps and of an eager step for steps with
    context: what a well-covered service does, before any bucket is chosen. Answers are cut at `max_seq_len`;
    requests that no step can hold are refused and counted. Refuses (`UsageError`) a trace of which nothing
    can be served.
    """
    from trtgate.plans.kernels import run_steps  # here, since it loads the compiler

    if not speed_up > 0:
        raise UsageError(
            f"a speed-up of `{speed_up:g}` is not above zero", "1 leaves the arrivals as they are"
        )
    requests, refused = _requests(trace, limits, speed_up)
    room = Room(
        decode_ns=_step_ns(costs.decode_replay, limits.max_decode_size),
        tokens_ns=_step_ns(costs.token_eager, limits.max_num_tokens),
        slots=1 + limits.draft_len,
        chunked=limits.chunked_prefill,
        kv_tokens=np.iinfo(np.int64).max // 2 if limits.kv_tokens is None else limits.kv_tokens,
    )
    served = len(requests.arrival_ns)
    decode_steps, token_steps = np.zeros_like(room.decode_ns), np.zeros_like(room.tokens_ns)
    ended_ns = 0
    for replica in range(min(limits.replicas, served)):
        columns = (np.ascontiguousarray(column[replica :: limits.replicas]) for column in requests)
        ended_ns = max(ended_ns, run_steps(Requests(*columns), room, decode_steps, token_steps))
    return Histogram(
        decode=Bins.from_counts(decode_steps),
        tokens=Bins.from_counts(token_steps),
        sources=combine_sources(trace.sources),
        origin="simulated",
        limits=limits,
        requests=served,
        refused=refused,
        drain_s=(ended_ns - int(requests.arrival_ns[-1])) / 1e9,
    )


def _requests(trace: Trace, limits: Limits, speed_up: float) -> tuple[Requests, dict[str, int]]:
    if trace.arrival_s[-1] / speed_up > LONGEST_S:
        raise UsageError(f"the trace spans {trace.arrival_s[-1]:.3g} s", "check the unit of its times")
    prompt = np.asarray(trace.prompt_tokens, np.int64)
    output = np.minimum(trace.output_tokens, np.maximum(limits.max_seq_len - prompt, 0))
    held = prompt + output + limits.draft_len
    served, refused = _within(limits, prompt, output, held)
    if not served.any():
        reasons = ", ".join(f"{count} {reason}" for reason, count in refused.items())
        raise UsageError(
            f"no request fits the limits: {reasons}", "raise the limits or allow chunked prefill"
        )
    further = np.ceil((output - 1) / (1 + limits.accepted_len)).astype(np.int64)
    arrival_ns = np.rint(trace.arrival_s / speed_up * 1e9).astype(np.int64)
    return Requests(arrival_ns[served], prompt[served], further[served], held[served]), refused


def _within(
    limits: Limits, prompt: Ints, output: Ints, held: Ints
) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """Which requests can be served, and how many cannot, by the first reason that meets them."""
    reasons = {"prompt over `max_seq_len`": output < 1}
    if not limits.chunked_prefill:
        reasons["prompt over `max_num_tokens`"] = prompt > limits.max_num_tokens
    if limits.kv_tokens is not None:
        reasons["longer than the KV cache"] = held > limits.kv_tokens
    served = np.ones(len(prompt), np.bool_)
    refused: dict[str, int] = {}
    for reason, met in reasons.items():
        count = int(np.count_nonzero(served & met))
        if count:
            refused[reason] = count
        served &= ~met
    return served, refused


def _step_ns(curve: CostCurve, largest: int) -> Ints:
    return np.maximum(np.rint(curve.at(np.arange(largest + 1)) * 1e6), 1).astype(np.int64)
