"""The two loops that are compiled: the simulation of in-flight batching, and the exact choice of buckets.

All numbers are whole, so that results are equal to the last bit on every machine. Import this module where a
loop is needed, not at the top of a file: loading the compiler takes longer than most commands.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from trtgate.plans.arrays import Ints, Problem, Requests, Room

Function = TypeVar("Function", bound=Callable[..., object])

UNREACHED = np.int64(1 << 62)


def _compiled(function: Function) -> Function:
    return cast("Function", njit(cache=True)(function))


@_compiled
def run_steps(  # noqa: PLR0915 - one state, one loop
    requests: Requests, room: Room, decode_steps: Ints, token_steps: Ints
) -> int:
    """Run one replica, adding to `decode_steps` and `token_steps`; returns when it ended, in nanoseconds.

    While no prompt is at work the loop goes from event to event: an arrival that can be taken, or an end.
    """
    arrival_ns, most_tokens = requests.arrival_ns, len(room.tokens_ns) - 1
    ends, freed = _ring(requests.further_steps), _ring(requests.further_steps)
    mask = len(ends) - 1
    now, step, head, running, used, rest, current = 0, 0, 0, 0, 0, 0, 0
    while head < len(arrival_ns) or running > 0 or rest > 0:
        if running == 0 and rest == 0 and arrival_ns[head] > now:
            now = arrival_ns[head]
        budget = most_tokens - running * room.slots
        free = len(room.decode_ns) - 1 - running
        context, joining, waits_for_room = 0, 0, False
        if rest > 0:
            context = min(rest, budget)
            free -= 1
            rest -= context
            if rest == 0:
                joining += _join(requests, current, step, ends, freed)
        while rest == 0 and context < budget and head < len(arrival_ns) and arrival_ns[head] <= now:
            prompt = requests.prompt_tokens[head]
            held = requests.held_tokens[head]
            too_long = not room.chunked and prompt > budget - context
            if free == 0 or used + held > room.kv_tokens or too_long:
                waits_for_room = True
                break
            current = head
            head += 1
            free -= 1
            used += held
            rest = max(prompt - (budget - context), 0)
            context += prompt - rest
            if rest == 0:
                joining += _join(requests, current, step, ends, freed)
        if context > 0:
            size = context + running * room.slots
            token_steps[size] += 1
            now += room.tokens_ns[size]
            running += joining
        else:
            lasts = room.decode_ns[running]
            most = len(ends)
            if head < len(arrival_ns) and not waits_for_room and free > 0:
                most = (arrival_ns[head] - now + lasts - 1) // lasts
            count = _steps_to_end(ends, step, most)
            decode_steps[running] += count
            now += count * lasts
            step += count - 1
        running -= ends[step & mask]
        used -= freed[step & mask]
        ends[step & mask] = 0
        freed[step & mask] = 0
        step += 1
    return now


@_compiled
def _ring(further_steps: Ints) -> Ints:
    """One place for each step that a request can still be running at, reused in turn; a power of two long."""
    places = 1
    while places < further_steps.max() + 2:
        places *= 2
    return np.zeros(places, np.int64)


@_compiled
def _join(requests: Requests, current: int, step: int, ends: Ints, freed: Ints) -> int:
    place = (step + requests.further_steps[current]) & (len(ends) - 1)
    ends[place] += 1
    freed[place] += requests.held_tokens[current]
    return 1


@_compiled
def _steps_to_end(ends: Ints, step: int, most: int) -> int:
    count = 1
    while count < most and ends[(step + count - 1) & (len(ends) - 1)] == 0:
        count += 1
    return count


@_compiled
def best_grids(problem: Problem) -> tuple[Ints, Ints]:
    """For each number of buckets k the cheapest grid and what all steps cost under it.

    With f_k(j) the cost of the steps up to candidate j when it is the k-th and largest bucket,

        f_k(j) = min over i < j of f_(k-1)(i) + replay[j] (running_steps[j] - running_steps[i]),

    candidate i is a line in replay[j] with slope -running_steps[i], and the lower hull of those lines answers
    each j in O(1) where `replay` is rising, else in O(log m). Ties go to the smaller candidate. Row k of the
    first result holds the k candidates, ascending; the second is `UNREACHED` where no grid of k buckets is
    allowed.
    """
    count, most = len(problem.replay), len(problem.furthest)
    before, after = np.full(count, UNREACHED), np.full(count, UNREACHED)
    line, start = np.empty(count, np.int64), np.empty(count, np.int64)
    parents = np.empty((most, count), np.int32)
    grids, totals = np.zeros((most, most), np.int64), np.full(most, UNREACHED)
    pins = np.flatnonzero(problem.pinned)
    last_pin = pins[-1] if len(pins) else 0
    before[0] = 0
    if last_pin == 0:
        totals[0] = problem.above[0]
    for k in range(1, most):
        _extend(problem, k, before, after, line, start, parents[k])
        end = 0
        for j in range(max(last_pin, k), problem.furthest[k] + 1):
            if after[j] < UNREACHED and after[j] + problem.above[j] < totals[k]:
                totals[k] = after[j] + problem.above[j]
                end = j
        for below in range(k, 0, -1):
            grids[k, below - 1] = end
            end = parents[below, end] if end > 0 else 0
        before, after = after, before
    return grids, totals


@_compiled
def _extend(  # noqa: PLR0917 - numba takes positions only
    problem: Problem, k: int, before: Ints, after: Ints, line: Ints, start: Ints, parent: NDArray[np.int32]
) -> None:
    """From f_(k-1) in `before` to f_k in `after`; a pinned candidate empties the hull: no grid skips it."""
    after[:k] = UNREACHED
    held, at, dearest = 0, 0, problem.replay.max()
    for j in range(k, len(before)):
        if problem.pinned[j - 1]:
            held = 0
        if before[j - 1] < UNREACHED:
            held = _insert(problem.running_steps, before, line, start, held, j - 1, dearest)
        if held == 0:
            after[j] = UNREACHED
            continue
        cost = problem.replay[j]
        if problem.rising:
            at = min(at, held - 1)
            while at + 1 < held and start[at + 1] <= cost:
                at += 1
        else:
            at = np.searchsorted(start[:held], cost, side="right") - 1
        best = line[at]
        after[j] = before[best] + cost * (problem.running_steps[j] - problem.running_steps[best])
        parent[j] = best


@_compiled
def _insert(  # noqa: PLR0917 - numba takes positions only
    running_steps: Ints, before: Ints, line: Ints, start: Ints, held: int, new: int, dearest: int
) -> int:
    """Put line `new`, no flatter than those before, on the hull of `held` lines; returns how many it holds.

    A line holds from the first whole number at which it is strictly below the one before it, rise // run + 1.
    Nobody asks beyond the `dearest` replay, so a line that would only hold there is left out.
    """
    while held > 0:
        run = running_steps[new] - running_steps[line[held - 1]]
        rise = before[new] - before[line[held - 1]]
        if rise >= dearest * run:
            return held
        if rise >= start[held - 1] * run and run > 0:
            line[held], start[held] = new, rise // run + 1
            return held + 1
        held -= 1
    line[0], start[0] = new, 1
    return 1
