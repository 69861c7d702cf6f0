"""Random planning problems that are small enough for brute force."""

from typing import Any

from hypothesis import strategies as st
from tests.builders import PoolBuilder, ProfileBuilder, pool, problem, profile, session

from partita_planner.problem import PlanningProblem

SIZES = (1, 2)
PRICES = ("1", "1.7", "0.6")


@st.composite
def small_problems(
    draw: Any, most_models: int = 2, objective: str = "Cost", most_blocks: int = 3, most_stages: int = 2
) -> PlanningProblem:
    """A chain of models on one or two pools, with a few blocks, two batch sizes and up to two vGPUs per GPU."""
    models = [f"m{i}" for i in range(draw(st.integers(1, most_models)))]
    blocks = draw(st.integers(1, most_blocks))
    pools: list[PoolBuilder] = []
    for name in ("fast", "slow")[: draw(st.integers(1, 2))]:
        made = pool(name).gpus(draw(st.integers(1, 2))).price(draw(st.sampled_from(PRICES)))
        made = made.bandwidth(draw(st.sampled_from(("100M", "10G")))).per_node(draw(st.integers(1, 2)))
        pools.append(made.mps(2) if draw(st.booleans()) else made)
    cuts = {m: [draw(st.sampled_from((0, 1000, 40_000))) for _ in range(blocks - 1)] for m in models}
    profiles = [draw(_profiles(model, made.name, blocks)).cuts(*cuts[model]) for model in models for made in pools]
    described = (
        session("random")
        .chain(*models)
        .slo(draw(st.integers(5, 60)))
        .rate(draw(st.integers(20, 400)))
        .planner(
            margin_percent=draw(st.sampled_from((0, 20))),
            headroom_percent=draw(st.sampled_from((0, 10))),
            max_stages=draw(st.integers(1, most_stages)),
            max_batch_size=draw(st.integers(1, 2)),
        )
        .with_spec(objective={"type": objective})
    )
    return problem(described, pools, profiles)


@st.composite
def _profiles(draw: Any, model: str, pool_name: str, blocks: int) -> ProfileBuilder:
    def rows(slowness: int) -> list[list[float]]:
        first = [draw(st.integers(500, 6000)) for _ in range(blocks)]
        return [[slowness * t, slowness * t * draw(st.sampled_from((1.2, 1.6, 2.0)))] for t in first]

    return profile(model).on(pool_name).batches(*SIZES).measured({1: rows(1), 2: rows(2)})
