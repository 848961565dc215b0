"""When requests are sent, and from lengths and times to the requests themselves; all of it seeded."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trtgate.errors import UsageError
from trtgate.loads.base import Ask
from trtgate.loads.prompts import Prompt, TextPrompt

Times = NDArray[np.float64]


def constant(count: int, rate: float) -> Times:
    """`count` times in seconds from 0, 1/rate apart; shape (count,)."""
    _check(count, rate)
    return np.arange(count) / rate


def poisson(count: int, rate: float, *, seed: int) -> Times:
    """`count` times of a Poisson process of `rate` a second; shape (count,)."""
    return gamma(count, rate, burstiness=1.0, seed=seed)


def gamma(count: int, rate: float, *, burstiness: float, seed: int) -> Times:
    """Times with gamma distributed gaps of shape `burstiness`: below 1 bursty, 1 Poisson, above 1 regular.

    The meaning is that of vLLM's `--burstiness`: the mean gap is 1/rate, its variation 1/sqrt(burstiness).
    """
    _check(count, rate)
    if not burstiness > 0:
        raise UsageError(f"burstiness is `{burstiness}`", "it is above 0; 1 is a Poisson process")
    gaps = np.random.default_rng(seed).gamma(burstiness, 1.0 / (rate * burstiness), count)
    return np.cumsum(gaps)


def ramp(count: int, first_rate: float, last_rate: float) -> Times:
    """`count` times whose rate grows evenly in time from `first_rate` to `last_rate`; shape (count,)."""
    _check(count, first_rate)
    _check(count, last_rate)
    span_s = 2 * count / (first_rate + last_rate)
    slope = (last_rate - first_rate) / span_s
    numbers = np.arange(count, dtype=np.float64)
    if slope == 0:
        return numbers / first_rate
    return (np.sqrt(first_rate**2 + 2 * slope * numbers) - first_rate) / slope


def replay(arrival_s: ArrayLike, *, speed: float = 1.0) -> Times:
    """The times of a trace, from 0, with every gap divided by `speed`."""
    times = np.asarray(arrival_s, dtype=np.float64)
    if not 0 < speed < np.inf:
        raise UsageError(f"speed is `{speed}`", "it is above 0; 2 halves every gap")
    return (times - times.min()) / speed if times.size else times


def asks_from_columns(
    arrival_s: ArrayLike,
    prompt_tokens: ArrayLike,
    output_tokens: ArrayLike,
    *,
    vocab_size: int,
    seed: int,
    unique_prefix: bool = True,
    tags: Sequence[str] = (),
) -> list[Ask]:
    """One ask a row, with token ids of exactly the length given; refuses columns of unequal length.

    With `unique_prefix` no two prompts share their first ids, so that no prefix cache helps; without it all
    prompts are beginnings of one sequence, so that every cache does. Another seed gives other prompts.
    """
    times = np.asarray(arrival_s, dtype=np.float64)
    prompts, outputs = np.asarray(prompt_tokens).tolist(), np.asarray(output_tokens).tolist()
    if not len(times) == len(prompts) == len(outputs) or len(tags) not in (0, len(times)):
        lengths = f"{len(times)}, {len(prompts)} and {len(outputs)}"
        raise UsageError(f"columns have {lengths} rows", "give one time, prompt and output a request")
    if vocab_size < 32:
        raise UsageError(f"vocabulary of `{vocab_size}` tokens", "32 are needed to make prompts differ")
    return [
        Ask(
            at_s=float(times[row]),
            prompt=Prompt(seed, int(prompts[row]), vocab_size, row if unique_prefix else None),
            max_tokens=int(outputs[row]),
            tag=tags[row] if tags else "",
        )
        for row in range(len(times))
    ]


def to_text(asks: Sequence[Ask], *, seed: int) -> list[Ask]:
    """The same requests with as many words as they had token ids, for chat endpoints."""
    return [
        replace(ask, prompt=TextPrompt(seed, len(ask.prompt), place).text()) for place, ask in enumerate(asks)
    ]


def closed_loop(asks: Sequence[Ask], streams: int, *, think_s: float = 0.0, ramp_s: float = 0.0) -> list[Ask]:
    """The same requests from `streams` users who each wait for an answer, and `think_s`, before the next.

    User k starts at k/streams of `ramp_s`; request i belongs to user i mod streams.
    """
    if streams < 1:
        raise UsageError(f"`{streams}` streams", "at least 1")
    starts = [replace(ask, at_s=ramp_s * k / streams, after=None) for k, ask in enumerate(asks[:streams])]
    rest = [replace(ask, at_s=think_s, after=row) for row, ask in enumerate(asks[streams:])]
    return starts + rest


def _check(count: int, rate: float) -> None:
    if count < 1:
        raise UsageError(f"`{count}` requests", "at least 1")
    if not 0 < rate < np.inf:
        raise UsageError(f"rate is `{rate}` requests a second", "it is above 0")
