"""The core's plan: latencies from profiles, budgets downstream, bytes between stages."""

from typing import Any

import pytest
from tests.builders import pool, problem, profile, session
from tests.runtime.scheduling.plans import Driver

from partita_api.pipelineplan import PipelinePlanSpec
from partita_api.session.execution import Batching, CutDType, Execution
from partita_planner.planning import plan
from partita_planner.problem import Planned, PlanningProblem
from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.plan import (
    ScheduledModule,
    ScheduledPipeline,
    ScheduledStage,
    SchedulingPlan,
    scheduling_plan,
    stage_latency,
)

SPARSE = profile("m").blocks(2).measured({1: [(100, 200, 400), (10, 20, 40)], 2: [(150, 300, 600), (15, 30, 60)]})


@pytest.mark.parametrize(
    ("first", "end", "divisor", "batch", "want_micros"),
    [
        pytest.param(0, 2, 1, 1, 110, id="measured, whole"),
        pytest.param(0, 1, 1, 4, 400, id="measured, first block"),
        pytest.param(1, 2, 2, 2, 30, id="half a GPU"),
        pytest.param(0, 2, 1, 3, 330, id="between measured sizes"),
    ],
)
def test_stage_latency(first: int, end: int, divisor: int, batch: int, want_micros: float) -> None:
    assert stage_latency(SPARSE.batches(1, 2, 4).build(), first, end, divisor, batch) == pytest.approx(want_micros)


@pytest.mark.parametrize(
    ("measured", "want_micros"),
    [
        pytest.param((3300, 1100, 7900), [1100, 1100, 4500, 7900], id="a noisy first size"),
        pytest.param((100, 400, 300), [100, 300, 300, 300], id="a noisy size between"),
        pytest.param((100, 200, 400), [100, 200, 300, 400], id="without noise"),
    ],
)
def test_a_batch_never_takes_longer_than_a_larger_one(measured: tuple[float, ...], want_micros: list[float]) -> None:
    noisy = profile("m").blocks(1).measured({1: [measured]}).batches(1, 2, 4).build()
    assert [stage_latency(noisy, 0, 1, 1, batch) for batch in range(1, 5)] == pytest.approx(want_micros)


def test_a_single_request_is_served_although_two_were_measured_faster() -> None:
    noisy = profile("m").blocks(1).measured({1: [(3300, 1100, 7900)]}).batches(1, 2, 4).build()
    stage = ScheduledStage(
        pool="gpu",
        first_block=0,
        end_block=1,
        vgpu_divisor=1,
        replicas=1,
        latency_micros=tuple(round(stage_latency(noisy, 0, 1, 1, batch)) for batch in range(1, 5)),
    )
    pipeline = ScheduledPipeline(name="a", batch_size=4, stages=(stage,))
    module = ScheduledModule(name="m", budget_micros=0, downstream_micros=0, pipelines=(pipeline,))
    driver = Driver(SchedulingPlan(name="p", modules=(module,))).all_join()
    driver.arrive(0, "m", 0, 140_000)
    driver.run()
    assert [len(dispatch.request_ids) for _, dispatch in driver.dispatches] == [1]


def test_latency_of_batches_below_the_smallest_measured_one_is_that_of_the_smallest() -> None:
    assert stage_latency(SPARSE.batches(2, 4, 8).build(), 0, 2, 1, 1) == 110


@pytest.mark.parametrize(
    ("divisor", "batch", "error", "want_message"),
    [
        pytest.param(3, 1, KeyError, "1/3", id="divisor not measured"),
        pytest.param(1, 5, ValueError, "up to batches of 4", id="batch not measured"),
    ],
)
def test_latency_that_was_not_measured(divisor: int, batch: int, error: type[Exception], want_message: str) -> None:
    with pytest.raises(error, match=want_message):
        stage_latency(SPARSE.batches(1, 2, 4).build(), 0, 2, divisor, batch)


def two_in_a_row(cut_dtype: CutDType = CutDType.FP16) -> tuple[PlanningProblem, PipelinePlanSpec]:
    """Two models. The first one is too slow for each single pool, and must be partitioned."""
    builder = session("s").slo(60).rate(50).chain("first", "second").with_spec(execution=Execution(cut_dtype=cut_dtype))
    profiles = [
        profile(name).on(where).linear(1000 * slow, 4000 * slow).cuts(1000)
        for name in ("first", "second")
        for where, slow in (("fast", 1), ("slow", 2))
    ]
    asked = problem(builder, [pool("fast").gpus(1), pool("slow").gpus(8).price("0.1")], profiles)
    outcome = plan(asked)
    assert isinstance(outcome, Planned)
    return asked, outcome.plan


def scheduled(asked: PlanningProblem, planned: PipelinePlanSpec) -> SchedulingPlan:
    return scheduling_plan("p", asked.spec, planned, asked.profiles, {"fast": 1e9})


def test_scheduling_plan_follows_the_pipeline_plan() -> None:
    asked, planned = two_in_a_row()
    made = scheduled(asked, planned)

    budgets = {m.name: m.budget_micros for m in planned.modules}
    assert [(m.name, m.downstream_micros) for m in made.modules] == [("first", budgets["second"]), ("second", 0)]
    for module, source in zip(made.modules, planned.modules, strict=True):
        for pipeline, origin in zip(module.pipelines, source.pipelines, strict=True):
            assert pipeline.batch_size == origin.batch_size
            for stage, planned_stage in zip(pipeline.stages, origin.stages, strict=True):
                assert (stage.pool, stage.replicas) == (planned_stage.pool, planned_stage.replicas)
                assert len(stage.latency_micros) == pipeline.batch_size
                assert stage.latency_micros[-1] == pytest.approx(planned_stage.latency_micros, abs=1)


@pytest.mark.parametrize(
    ("batching", "want"),
    [
        pytest.param({}, ("Deferred", [None, None]), id="default"),
        pytest.param({"policy": "Elsa"}, ("Elsa", [None, None]), id="a policy for all modules"),
        pytest.param({"modules": {"second": "Eager"}}, ("Deferred", [None, "Eager"]), id="another one for a module"),
        pytest.param(
            {"policy": "Elsa", "modules": {"second": "Eager"}, "elsa": {"alphaPercent": 125}},
            ("Elsa:1.25:1", [None, "Eager"]),
            id="settings of the policy for all modules",
        ),
        pytest.param(
            {"modules": {"first": "Elsa"}, "elsa": {"alphaPercent": 90, "betaPercent": 1000}},
            ("Deferred", ["Elsa:0.9:10", None]),
            id="settings of the policy for one module",
        ),
    ],
)
def test_batching_policies_and_their_settings(batching: dict[str, Any], want: tuple[str, list[str | None]]) -> None:
    asked, planned = two_in_a_row()
    spec = asked.spec.model_copy(update={"batching": Batching.model_validate(batching)})
    made = scheduling_plan("p", spec, planned, asked.profiles, {})
    SchedulingCore(made)  # raises ValueError for a policy that it does not know

    assert (made.policy, [module.policy for module in made.modules]) == want


@pytest.mark.parametrize(
    ("cut_dtype", "want_bytes"),
    [pytest.param(CutDType.FP16, 500, id="half"), pytest.param(CutDType.FP32, 1000, id="full")],
)
def test_bytes_between_stages_follow_the_element_type(cut_dtype: CutDType, want_bytes: int) -> None:
    asked, planned = two_in_a_row(cut_dtype)
    stage = planned.modules[0].pipelines[0].stages[0]
    halves = tuple(
        stage.model_copy(update={"blocks": stage.blocks.model_copy(update={"first": first, "end": end})})
        for first, end in ((0, 4), (4, 10))
    )
    pipeline = planned.modules[0].pipelines[0].model_copy(update={"stages": halves})
    module = planned.modules[0].model_copy(update={"pipelines": (pipeline,)})
    made = scheduled(asked, planned.model_copy(update={"modules": (module, *planned.modules[1:])}))

    assert [s.output_bytes for s in made.modules[0].pipelines[0].stages] == [want_bytes, 0]


def test_missing_profile_is_named() -> None:
    asked, planned = two_in_a_row()

    with pytest.raises(KeyError, match="second"):
        scheduling_plan("p", asked.spec, planned, {k: v for k, v in asked.profiles.items() if k[0] == "first"}, {})
