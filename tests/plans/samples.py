"""Small inputs that several tests of `plans` share, and slow but plain versions of what is tested."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from trtgate.plans.costs import CostCurve, Costs, GraphMemory
from trtgate.plans.histogram import Limits
from trtgate.traces.base import Trace, TraceSource


def source(name="sample", kept=1, **changes):
    fields = {"name": name, "sha256": "0" * 64, "format": "csv", "read": kept, "kept": kept, "span_s": 1.0}
    return TraceSource(**{**fields, "time_unit": "s", **changes})


def trace(arrivals_s, prompts, outputs):
    return Trace(
        np.asarray(arrivals_s, np.float64),
        np.asarray(prompts, np.int64),
        np.asarray(outputs, np.int64),
        sources=(source(kept=len(prompts)),),
    )


def curve(*points, basis="measured"):
    return CostCurve(sizes=tuple(size for size, _ in points), ms=tuple(ms for _, ms in points), basis=basis)


def costs(decode=((1, 1.0), (8, 3.0)), tokens=((1, 2.0), (64, 9.0))):
    memory = GraphMemory(largest_bytes_per_size=100, each_bytes=10)
    return Costs(
        model="tiny",
        platform="cpu",
        decode_replay=curve(*decode),
        decode_eager=curve(*((size, 2 * ms) for size, ms in decode)),
        token_replay=curve(*tokens),
        token_eager=curve(*tokens),
        decode_graph_bytes=memory,
        token_graph_bytes=memory,
        decode_capture_s=0.5,
        token_capture_s=0.5,
        kv_bytes_per_token=4,
    )


def cost_by_hand(bins, buckets, replay, eager):
    """Mean step in whole nanoseconds, one step size at a time."""
    whole = 0
    for size, steps in zip(bins.high, bins.steps, strict=True):
        bucket = next((bucket for bucket in buckets if bucket >= size), None)
        ms = float(eager.at(size)) if bucket is None else float(replay.at(bucket))
        whole += steps * round(ms * 1e6)
    return whole


def best_by_hand(bins, candidates, replay, eager, most):
    """The cheapest grid among all of up to `most` candidates: fewest first, then smallest from the top."""
    grids = [grid for count in range(most + 1) for grid in combinations(candidates, count)]
    return min(grids, key=lambda grid: (cost_by_hand(bins, grid, replay, eager), len(grid), grid[::-1]))


@dataclass
class Running:
    prompt_left: int
    steps_left: int
    held: int


def steps_by_hand(trace, limits: Limits, costs, speed_up=1.0):
    """Replica by replica, iteration by iteration, request by request: {size: steps} of both kinds."""
    decode, tokens = {}, {}
    requests = [
        (round(float(at) / speed_up * 1e9), int(prompt), min(int(output), limits.max_seq_len - int(prompt)))
        for at, prompt, output in zip(trace.arrival_s, trace.prompt_tokens, trace.output_tokens, strict=True)
    ]
    kv_tokens = limits.kv_tokens or 10**18
    requests = [
        (at, prompt, output)
        for at, prompt, output in requests
        if output >= 1
        and (limits.chunked_prefill or prompt <= limits.max_num_tokens)
        and prompt + output + limits.draft_len <= kv_tokens
    ]
    for replica in range(limits.replicas):
        run_by_hand(
            requests[replica :: limits.replicas],
            limits,
            costs,
            kv_tokens=kv_tokens,
            decode=decode,
            tokens=tokens,
        )
    return decode, tokens


def run_by_hand(waiting, limits, costs, *, kv_tokens, decode, tokens):
    slots, now, active = 1 + limits.draft_len, 0, []
    most = min(limits.max_batch_size, limits.max_num_tokens // slots)
    while waiting or active:
        if not active:
            now = max(now, waiting[0][0])
        generating = [request for request in active if request.prompt_left == 0]
        budget = limits.max_num_tokens - slots * len(generating)
        chunks = []
        for request in active:
            if request.prompt_left:
                chunks.append((request, min(request.prompt_left, budget)))
                budget -= chunks[-1][1]
        while waiting and waiting[0][0] <= now and budget > 0 and len(active) < most:
            _, prompt, output = waiting[0]
            held = prompt + output + limits.draft_len
            if sum(request.held for request in active) + held > kv_tokens:
                break
            if any(chunk < request.prompt_left for request, chunk in chunks):
                break
            if not limits.chunked_prefill and prompt > budget:
                break
            steps = -(-(output - 1) // (1 + int(limits.accepted_len)))
            active.append(Running(prompt, steps, held))
            chunks.append((active[-1], min(prompt, budget)))
            budget -= chunks[-1][1]
            waiting = waiting[1:]
        for request in generating:
            request.steps_left -= 1
        for request, chunk in chunks:
            request.prompt_left -= chunk
        if chunks:
            size = sum(chunk for _, chunk in chunks) + slots * len(generating)
            tokens[size] = tokens.get(size, 0) + 1
            now += round(float(costs.token_eager.at(size)) * 1e6)
        else:
            size = len(generating)
            decode[size] = decode.get(size, 0) + 1
            now += round(float(costs.decode_replay.at(size)) * 1e6)
        active = [request for request in active if request.prompt_left or request.steps_left]
