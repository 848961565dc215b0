"""The arrays that the compiled loops work on; kept apart, so that types load no compiler."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Requests(NamedTuple):
    """What one replica serves, one row a request, by arrival.

    Request i arrives at `arrival_ns[i]`, needs `further_steps[i]` steps after the one that ends its prompt,
    and holds `held_tokens[i]` of the KV cache from its first chunk to its last step.
    """

    arrival_ns: Ints
    prompt_tokens: Ints
    further_steps: Ints
    held_tokens: Ints


class Room(NamedTuple):
    """What one replica can hold: `decode_ns[n]` and `tokens_ns[n]` are the times of steps of size n.

    Their lengths less 1 are the most requests and the most tokens of a step; `slots` are the tokens that a
    generation request takes of it.
    """

    decode_ns: Ints
    tokens_ns: Ints
    slots: int
    chunked: bool
    kv_tokens: int


class Problem(NamedTuple):
    """A choice of buckets in whole numbers: candidates 1..m by size, and 0, which stands for none.

    `running_steps[j]` steps are not larger than candidate j, a replay there takes `replay[j]`, and the steps
    above it take `above[j]` in all when run eagerly. A grid holds every candidate that is `pinned`, and one
    of k buckets ends at `furthest[k]` or before. `rising` says that `replay` never falls.
    """

    running_steps: Ints
    replay: Ints
    above: Ints
    pinned: NDArray[np.bool_]
    furthest: Ints
    rising: bool
