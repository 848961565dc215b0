"""The choice of both grids under one budget: decode first, tokens from what it leaves."""

from dataclasses import dataclass

from trtgate.errors import UsageError
from trtgate.plans.budget import KvBudget
from trtgate.plans.config import config_for
from trtgate.plans.costs import CostCurve, Costs, GraphMemory
from trtgate.plans.grid import Constraints, GridPlan, choose_grid
from trtgate.plans.histogram import Kind
from trtgate.profile import Profile
from trtgate.releases.inputs import Inputs, kv_budget, limits_of
from trtgate.runtimes import runtime_for


@dataclass(frozen=True, slots=True)
class KindCosts:
    """What one kind of graph costs."""

    replay: CostCurve
    eager: CostCurve
    memory: GraphMemory
    capture_s: float


def costs_of(costs: Costs, kind: Kind) -> KindCosts:
    """The part of the costs that concerns one kind of graph."""
    if kind == "decode":
        return KindCosts(
            costs.decode_replay, costs.decode_eager, costs.decode_graph_bytes, costs.decode_capture_s
        )
    return KindCosts(costs.token_replay, costs.token_eager, costs.token_graph_bytes, costs.token_capture_s)


def choose_grids(inputs: Inputs) -> tuple[GridPlan | None, GridPlan | None]:
    """The decode grid and the token grid; None for a kind of which the trace has no steps."""
    profile = inputs.profile
    kv = kv_budget(profile, inputs.costs, inputs.trace)
    decode = _choose(inputs, "decode", constraints_of(profile, "decode"), kv)
    limits = constraints_of(profile, "tokens")
    if decode is not None:
        limits, kv = limits.beside(decode.row), kv.beside(decode.row.graph_bytes)
    return decode, _choose(inputs, "tokens", limits, kv)


def constraints_of(profile: Profile, kind: Kind) -> Constraints:
    """The profile's limits on one grid; refuses pinned sizes that do not fit them."""
    limits, grid = limits_of(profile), profile.grid
    decode = kind == "decode"
    ceiling = limits.max_decode_size if decode else limits.max_tokens_size
    pinned = grid.pinned_decode if decode else grid.pinned_tokens
    graphs = grid.max_decode_graphs if decode else grid.max_token_graphs
    if max(pinned, default=0) > ceiling or len(set(pinned)) > graphs:
        raise UsageError(
            f"the pinned {kind} sizes {list(pinned)} exceed the limits",
            f"at most {graphs} sizes of 1 to {ceiling} fit this profile",
        )
    return Constraints(
        max_graphs=graphs,
        ceiling=ceiling,
        graph_memory_bytes=grid.graph_memory_bytes,
        capture_s=grid.capture_s,
        alignment=1 if decode else grid.alignment,
        pinned=pinned,
        tolerance=grid.tolerance,
    )


def _choose(inputs: Inputs, kind: Kind, constraints: Constraints, kv: KvBudget) -> GridPlan | None:
    profile = inputs.profile
    if not inputs.fit.bins(kind).steps:
        return None
    default = runtime_for(profile.runtime.kind).default_grids(
        config_for(profile, "default"), profile.runtime.version
    )
    costs = costs_of(inputs.costs, kind)
    return choose_grid(
        kind,
        inputs.fit.bins(kind),
        inputs.later.bins(kind),
        costs.replay,
        costs.eager,
        constraints,
        memory=costs.memory,
        capture_s=costs.capture_s,
        kv=kv,
        alternatives={"runtime default": default.decode if kind == "decode" else default.tokens},
    )
