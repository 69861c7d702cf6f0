"""Properties for every plan and load: bounds, convergence, and no steps when the load is met."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.autoscaling.load_model import StageShape, capacities, flat_top, plan_of

from partita_api.pipelineplan import PipelinePlan
from partita_api.session.autoscaling import Autoscaling
from partita_runtime.autoscaling.replicas import autoscale, planned_targets
from partita_runtime.autoscaling.stages import StageTarget

POOLS = ("big", "small")
SETTINGS = Autoscaling.model_validate(
    {"badRateThreshold": "1%", "idleFractionThreshold": "30%", "coolDownSeconds": 0, "maxReplicas": 200}
)
STEPS = 40

stages = st.lists(
    st.tuples(st.sampled_from(POOLS), st.integers(1, 4), st.integers(1, 20), st.integers(5_000, 200_000)),
    min_size=1,
    max_size=3,
)
modules = st.dictionaries(
    st.sampled_from(("detect", "classify")),
    st.dictionaries(st.sampled_from(("p", "q")), stages, min_size=1),
    min_size=1,
)
loads = st.fixed_dictionaries({"detect": st.floats(0, 3000), "classify": st.floats(0, 3000)})


def run(plan: PipelinePlan, load: Mapping[str, float], free: Mapping[str, int]) -> list[tuple[StageTarget, ...]]:
    """Replicas after each step under a constant load; unused accelerators of `free` stay free."""
    capacity = {pool: free.get(pool, 0) + used(plan, planned_targets(plan), pool) for pool in POOLS}
    history = [planned_targets(plan)]
    for _ in range(STEPS):
        left = {pool: capacity[pool] - used(plan, history[-1], pool) for pool in POOLS}
        decision = autoscale(SETTINGS, plan, history[-1], flat_top(plan, history[-1], load), left)
        history.append(decision.targets)
    return history


def used(plan: PipelinePlan, targets: tuple[StageTarget, ...], pool: str) -> int:
    """Whole accelerators of a pool that these replicas hold: each has vGPUs of one size only."""
    replicas = {(t.module, t.pipeline, t.stage): t.replicas for t in targets}
    by_size = Counter[int]()
    for module in plan.spec.modules:
        for pipeline in module.pipelines:
            for at, stage in enumerate(pipeline.stages):
                if stage.pool == pool:
                    by_size[stage.vgpu_divisor] += replicas[module.name, pipeline.name, at]
    return sum(-(-count // divisor) for divisor, count in by_size.items())


@given(modules, loads, st.fixed_dictionaries({pool: st.integers(0, 50) for pool in POOLS}))
def test_replicas_stay_within_their_bounds(
    shape: dict[str, dict[str, list[StageShape]]], load: dict[str, float], free: dict[str, int]
) -> None:
    plan = plan_of(shape)
    history = run(plan, load, free)
    for targets in history:
        assert all(1 <= target.replicas <= SETTINGS.max_replicas for target in targets)
        for pool in POOLS:
            assert used(plan, targets, pool) <= free[pool] + used(plan, history[0], pool)


@given(modules, loads)
def test_under_a_constant_load_replicas_become_stable_and_meet_it(
    shape: dict[str, dict[str, list[StageShape]]], load: dict[str, float]
) -> None:
    plan = plan_of(shape)
    history = run(plan, load, {"big": 10**6, "small": 10**6})
    assert history[-1] == history[-2] == history[-3]
    by_stage = capacities(plan, history[-1])
    at_most = {(t.module, t.pipeline) for t in history[-1] if t.replicas == SETTINGS.max_replicas}
    for module in plan.spec.modules:
        capacity = sum(min(by_stage[module.name, p.name]) for p in module.pipelines)
        if not any((module.name, p.name) in at_most for p in module.pipelines):
            assert capacity >= load[module.name] * 0.99 - 1e-6


@given(modules, loads)
def test_replicas_do_not_oscillate_under_a_constant_load(
    shape: dict[str, dict[str, list[StageShape]]], load: dict[str, float]
) -> None:
    history = run(plan_of(shape), load, {"big": 10**6, "small": 10**6})
    totals = [[target.replicas for target in targets] for targets in history]
    for counts in zip(*totals, strict=True):
        steps = [after - before for before, after in pairwise(counts) if after != before]
        turns = sum((a > 0) != (b > 0) for a, b in pairwise(steps))
        assert turns <= 1
