"""The differences between two plans."""

from typing import Any

import pytest
from tests.builders import linear_profiles, pool, problem, session
from tests.planner.problems.planned import planned

from partita_api.fields.quantity import Quantity
from partita_api.pipelineplan import PipelinePlanSpec, WorstLoss
from partita_planner.explain.difference import PlanDifference, differences

PLAN = planned(
    problem(
        session("s").slo(200).rate(250).chain("a", "b").planner(max_stages=1),
        [pool("fast").gpus(8), pool("slow").gpus(8).price("3").mps(2)],
        linear_profiles(("a", "b"), {"fast": 1.0, "slow": 2.0}),
    )
)
A = "module a, blocks 0-9 on fast"


def changed(**stage: Any) -> PipelinePlanSpec:
    """The plan with another stage of module `a`."""
    module = PLAN.modules[0]
    (old,) = module.pipelines
    new = old.model_copy(update={"stages": (old.stages[0].model_copy(update=stage),)})
    return with_pipelines(new)


def with_pipelines(*pipelines: Any) -> PipelinePlanSpec:
    module = PLAN.modules[0].model_copy(update={"pipelines": pipelines})
    return PLAN.model_copy(update={"modules": (module, PLAN.modules[1])})


@pytest.mark.parametrize(
    ("after", "want"),
    [
        pytest.param(changed(replicas=7), [PlanDifference(A, "replicas of stage 0", "{n}", "7")], id="replicas"),
        pytest.param(
            with_pipelines(PLAN.modules[0].pipelines[0].model_copy(update={"batch_size": 3})),
            [PlanDifference(A, "batch size", "{batch}", "3")],
            id="batch size",
        ),
        pytest.param(
            changed(pool="slow", vgpu_divisor=2),
            [
                PlanDifference(A, "pipeline", "batches of {batch}, replicas {n}", None),
                PlanDifference(
                    "module a, blocks 0-9 on slow (1/2)", "pipeline", None, "batches of {batch}, replicas {n}"
                ),
            ],
            id="pool and vGPU size",
        ),
        pytest.param(
            with_pipelines(
                PLAN.modules[0].pipelines[0].model_copy(update={"name": "p9"}),
            ),
            [],
            id="a name is nothing",
        ),
        pytest.param(
            PLAN.model_copy(update={"solution": PLAN.solution.model_copy(update={"seconds": "9", "explanation": ""})}),
            [],
            id="nor is how it was found",
        ),
        pytest.param(
            PLAN.model_copy(update={"throughput": PLAN.throughput + "1"}),
            [PlanDifference("plan", "throughput in requests/s", "{throughput}", "{throughput}1")],
            id="throughput",
        ),
        pytest.param(PLAN, [], id="nothing"),
    ],
)
def test_what_changes(after: PipelinePlanSpec, want: list[PlanDifference]) -> None:
    pipeline = PLAN.modules[0].pipelines[0]
    facts = {"n": pipeline.stages[0].replicas, "batch": pipeline.batch_size, "throughput": PLAN.throughput}

    found = [change for change in differences(PLAN, after) if not change.where.startswith("pool")]

    assert found == [
        PlanDifference(c.where, c.what, c.before and c.before.format(**facts), c.after and c.after.format(**facts))
        for c in want
    ]


def test_gpus_that_are_moved_are_named_by_pool() -> None:
    n = PLAN.gpus()["fast"]
    moved = PLAN.modules[0].pipelines[0].stages[0].replicas

    found = [change for change in differences(PLAN, changed(pool="slow")) if change.where.startswith("pool")]

    assert found == [
        PlanDifference("pool fast", "accelerators", str(n), str(n - moved)),
        PlanDifference("pool slow", "accelerators", "0", str(moved)),
    ]


def test_pipelines_are_paired_by_their_stages() -> None:
    """Of two pipelines on the same blocks and pools, the one with the same batch size is the same one."""
    (small,) = PLAN.modules[0].pipelines
    large = small.model_copy(update={"name": "p1", "batch_size": small.batch_size + 1})

    found = differences(with_pipelines(small, large), with_pipelines(large))

    assert [(change.where, change.what, change.after) for change in found if change.what == "pipeline"] == [
        (A, "pipeline", None)
    ]
    assert not [change for change in found if change.what == "batch size"]


def test_modules_that_come_and_go() -> None:
    alone = PLAN.model_copy(update={"modules": PLAN.modules[:1]})

    gone, come = differences(PLAN, alone), differences(alone, PLAN)

    assert PlanDifference("module b", "module", "served", None) in gone
    assert PlanDifference("module b", "module", None, "served") in come


def test_what_is_served_after_a_loss_is_compared() -> None:
    worst = WorstLoss(lost="pool fast", throughput=Quantity("40"))
    survives = PLAN.model_copy(update={"solution": PLAN.solution.model_copy(update={"worst_loss": worst})})

    assert differences(PLAN, survives) == (PlanDifference("plan", "requests/s after the worst loss", None, "40"),)
