"""The same run in the words of other load generators, so that a number can be held against any of theirs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trtgate.loads.base import Answer, LoadResult

PeerSamples = dict[str, dict[str, NDArray[np.float64]]]


def peer_samples(result: LoadResult) -> PeerSamples:
    """Samples in ms by tool and by its own name of the metric, as its source defines them (`docs/metrics.md`).

    All count from the send. They take percentiles by linear interpolation; `numpy.percentile` does the same.
    """
    done = [answer for answer in result.answers if answer.ok and answer.tokens > 0]
    several = [answer for answer in done if answer.tokens > 1]
    ttft = _ms([answer.first_s - answer.sent_s for answer in done])
    chunk_gaps = _gaps(done)
    per_token = _ms([(answer.last_s - answer.first_s) / (answer.tokens - 1) for answer in several])
    weighted = np.repeat(per_token, [answer.tokens - 1 for answer in several])
    e2e = _ms([answer.last_s - answer.sent_s for answer in done])
    return {
        "aiperf": {
            "time_to_first_token": ttft,
            "inter_token_latency": per_token,
            "inter_chunk_latency": chunk_gaps,
            "request_latency": e2e,
        },
        "guidellm": {
            "time_to_first_token_ms": ttft,
            "inter_token_latency_ms": weighted,
            "time_per_output_token_ms": _ms([(one.last_s - one.sent_s) / one.tokens for one in done]),
            "request_latency": _ms([answer.end_s - answer.sent_s for answer in done]),
        },
        "inference-perf": {
            "time_to_first_token": ttft,
            "inter_token_latency": _with_zero_gaps(done),
            "time_per_output_token": per_token,
            "request_latency": _ms([answer.end_s - answer.sent_s for answer in done]),
        },
        "vllm-bench": {"ttft": ttft, "itl": chunk_gaps, "tpot": per_token, "e2el": e2e},
        "trtllm-benchmark-serving": {
            "ttft": ttft,
            "itl": chunk_gaps,
            "tpot": _ms([(one.end_s - one.first_s) / (one.tokens - 1) for one in several]),
            "e2el": _ms([answer.end_s - answer.sent_s for answer in done]),
        },
        "llmperf": {
            "ttft_s": ttft,
            "inter_token_latency_s": _ms([(one.last_s - one.sent_s) / one.tokens for one in done]),
            "end_to_end_latency_s": _ms([answer.end_s - answer.sent_s for answer in done]),
        },
    }


def _ms(values_s: list[float]) -> NDArray[np.float64]:
    return np.array(values_s, dtype=np.float64) * 1e3


def _gaps(done: Sequence[Answer]) -> NDArray[np.float64]:
    parts = [np.diff(np.frombuffer(answer.chunk_s, dtype=np.float64)) for answer in done]
    return np.concatenate(parts or [np.empty(0)]) * 1e3


def _with_zero_gaps(done: Sequence[Answer]) -> NDArray[np.float64]:
    """One gap a token: the k tokens of a chunk give its gap once and k-1 gaps of 0."""
    times = [np.repeat(np.frombuffer(one.chunk_s, np.float64), one.chunk_tokens) for one in done]
    return np.concatenate([np.diff(one) for one in times] or [np.empty(0)]) * 1e3
