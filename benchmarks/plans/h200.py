"""Step costs of one H200 (random weights, bf16): decode of a 1.2B model, steps with context of an 8B model.

Points marked `design` are the measured ones that section 5 of the design page gives. The others are filled in:
`between` lies on the straight line between two measured points; `scaled` continues a measured point by
arithmetic (the 8B model is bound by it from 1,024 tokens on: 28.6 ms / 1,024 = 27.9 us a token, where replay and
eager are then taken as equal) or, below it, by the reading of 16 GB of weights at 4.8 TB/s and a host share of
2.6 ms; eager below 512 tokens is bound by launches, twice the 8.4 ms of the 1.2B model with half the layers.
Graph memory: 1.6 GB at 3,072 tokens is `design`; 10 MiB a graph is the figure of TensorRT-LLM's PR 12895 for another
model; 0.5 MiB a decode slot and the capture times are guesses, which no step time depends on.
"""

from trtgate.plans.costs import CostCurve, Costs, GraphMemory

MIB = 1 << 20

DECODE_REPLAY_1B = {1: (2.4, "design"), 128: (5.538, "between"), 256: (8.7, "design")}
DECODE_EAGER_1B = {1: (8.4, "design"), 128: (9.396, "between"), 256: (10.4, "design")}
TOKEN_REPLAY_8B = {
    1: (6.0, "scaled"),
    128: (6.6, "scaled"),
    256: (8.9, "scaled"),
    512: (15.2, "scaled"),
    1024: (28.4, "design"),
    2048: (57.2, "scaled"),
    8192: (228.8, "scaled"),
}
TOKEN_EAGER_8B = {
    1: (16.8, "scaled"),
    512: (17.1, "design"),
    1024: (28.6, "design"),
    2048: (57.2, "scaled"),
    8192: (228.8, "scaled"),
}


def h200_costs() -> Costs:
    """Return the curves above as one `Costs`."""
    return Costs(
        model="1.2B (decode), 8B (tokens)",
        platform="h200",
        decode_replay=_curve(DECODE_REPLAY_1B),
        decode_eager=_curve(DECODE_EAGER_1B),
        token_replay=_curve(TOKEN_REPLAY_8B),
        token_eager=_curve(TOKEN_EAGER_8B),
        decode_graph_bytes=GraphMemory(largest_bytes_per_size=MIB / 2, each_bytes=10 * MIB),
        token_graph_bytes=GraphMemory(largest_bytes_per_size=1.6e9 / 3072, each_bytes=10 * MIB),
        decode_capture_s=0.3,
        token_capture_s=0.6,
        kv_bytes_per_token=131072,
    )


def _curve(points: dict[int, tuple[float, str]]) -> CostCurve:
    return CostCurve(sizes=tuple(points), ms=tuple(ms for ms, _ in points.values()), basis="measured")
