"""The validator finds every error in a plan."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import pool, problem, profile, session

from partita_api.pipelineplan import PipelinePlanSpec
from partita_api.session.autoscaling import AvailabilityGoal
from partita_planner.planning import plan
from partita_planner.problem import Planned, PlanningProblem
from partita_planner.validation import validate

BLOCKS = [[2000.0, 3000.0], [2000.0, 3000.0]]
SLOW_END = [[2000.0, 3000.0], [20_000.0, 30_000.0]]


def asked() -> PlanningProblem:
    """Two models, the first of which is cheapest in two stages."""
    pools = [pool("fast").price("10").gpus(2).mps(2), pool("slow").price("1").gpus(3)]
    profiles = [
        profile("a").batches(1, 2).measured({1: BLOCKS, 2: BLOCKS}).cuts(1000),
        profile("a").on("slow").batches(1, 2).measured({1: SLOW_END}).cuts(1000),
        profile("b").on("slow").batches(1, 2).measured({1: BLOCKS}).cuts(1000),
    ]
    return problem(session("s").slo(15).rate(350).chain("a", "b").planner(headroom_percent=10), pools, profiles)


@pytest.fixture(scope="module")
def good() -> dict[str, Any]:
    outcome = plan(asked())
    assert isinstance(outcome, Planned), outcome
    assert [len(m.pipelines[0].stages) for m in outcome.plan.modules] == [2, 1]
    return outcome.plan.model_dump(mode="json")


def stage(document: dict[str, Any], index: int = 0, module: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = document["modules"][module]["pipelines"][0]["stages"][index]
    return found


def pipeline(document: dict[str, Any], module: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = document["modules"][module]["pipelines"][0]
    return found


def rename_pipeline(document: dict[str, Any]) -> None:
    document["modules"][0]["pipelines"].append(pipeline(document))


@pytest.mark.parametrize(
    ("spoil", "want"),
    [
        pytest.param(lambda d: d["modules"].pop(), "the plan has modules ['a'], the session ['a', 'b']", id="module"),
        pytest.param(lambda d: d["modules"][0].update(pipelines=[]), "'a' has no pipeline", id="no pipeline"),
        pytest.param(rename_pipeline, "several pipelines of one name", id="pipelines of one name"),
        pytest.param(lambda d: stage(d).update(pool="moon"), "pool 'moon'", id="unknown pool"),
        pytest.param(lambda d: stage(d, 1).update(vgpu_divisor=3), "vGPUs of 1/3", id="divisor"),
        pytest.param(lambda d: pipeline(d).update(batch_size=3), "batches of 3, which were not measured", id="batch"),
        pytest.param(
            lambda d: pipeline(d).update(batch_size=32),
            "batches of 32, above planner.maxBatchSize 16",
            id="large batch",
        ),
        pytest.param(
            lambda d: stage(d, 1)["blocks"].update(first=0), "does not run blocks 0 to 2 in order", id="blocks twice"
        ),
        pytest.param(lambda d: pipeline(d)["stages"].pop(), "does not run blocks 0 to 2", id="blocks missing"),
        pytest.param(
            lambda d: pipeline(d).update(stages=[stage(d)] * 3), "3 stages, more than planner.maxStages 2", id="stages"
        ),
        pytest.param(lambda d: stage(d).update(latency_micros=1), "says that stage 0 takes 1 us", id="latency"),
        pytest.param(lambda d: stage(d).update(transfer_micros=99), "sends for 99 us", id="transfer"),
        pytest.param(lambda d: pipeline(d).update(throughput="9"), "says that it serves 9 samples/s", id="throughput"),
        pytest.param(lambda d: d["modules"][1].update(budget_micros=1), "module's budget of 1 us", id="budget"),
        pytest.param(lambda d: d["modules"][1].update(budget_micros=90_000), "more than the SLO", id="SLO"),
        pytest.param(
            lambda d: stage(d, module=1).update(replicas=9), "accelerators of pool 'slow', which has 3", id="capacity"
        ),
        pytest.param(lambda d: d["modules"][0].update(rate="1"), "do not follow from one request rate", id="rates"),
        pytest.param(lambda d: d.update(throughput="1"), "says that it serves 1 requests/s", id="plan throughput"),
        pytest.param(lambda d: d["cost"].update(allocated_per_hour="1"), "allocated cost is 1 an hour", id="allocated"),
        pytest.param(lambda d: d["cost"].update(occupancy_per_hour="1"), "occupancy cost is 1 an hour", id="occupancy"),
        pytest.param(lambda d: d["solution"].update(value="1"), "its objective value is 1", id="value"),
        pytest.param(lambda d: d["solution"].update(bound="999"), "better than its own bound 999", id="bound"),
        pytest.param(lambda d: d["solution"].update(gap="0.5"), "says that its gap is 0.5", id="gap"),
        pytest.param(lambda d: d["solution"].update(objective="Throughput"), "the session wants Cost", id="objective"),
        pytest.param(lambda d: d["profiles"][0].update(key="x"), "made from profile x", id="profile"),
    ],
)
def test_spoilt_plan_is_found_out(good: dict[str, Any], spoil: Callable[[dict[str, Any]], None], want: str) -> None:
    document = PipelinePlanSpec.model_validate(good).model_dump(mode="json")
    spoil(document)

    found = validate(PipelinePlanSpec.model_validate(document), asked())

    assert any(want in violation for violation in found), found


def test_good_plan_passes(good: dict[str, Any]) -> None:
    assert validate(PipelinePlanSpec.model_validate(good), asked()) == ()


@pytest.mark.parametrize(
    ("availability", "want"),
    [
        pytest.param(
            {"surviveLoss": "Replica"},
            "without a replica of b/p0, stage 0, on slow, module 'b' has capacity for 250 samples/s",
            id="replica",
        ),
        pytest.param({"surviveLoss": "Pool"}, "without pool slow, module 'b' has capacity for 0 samples/s", id="pool"),
        pytest.param(
            {"surviveLoss": "Replica", "servedShare": "0%", "minReplicas": 3},
            "stage 0 of a/p0 has 1 replicas, fewer than availability.minReplicas 3",
            id="fewest replicas",
        ),
    ],
)
def test_plan_that_does_not_survive_is_found_out(good: dict[str, Any], availability: dict[str, Any], want: str) -> None:
    problem = asked()
    declared = AvailabilityGoal.model_validate(availability)
    problem = replace(problem, spec=problem.spec.model_copy(update={"availability": declared}))

    found = validate(PipelinePlanSpec.model_validate(good), problem)

    assert any(want in violation for violation in found), found


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({"rate": 500.0}, "needs it for", id="more load"),
        pytest.param({"pools": ()}, "uses pool", id="pools gone"),
        pytest.param({"profiles": {}}, "uses pool", id="profiles gone"),
    ],
)
def test_plan_is_checked_against_the_present_problem(good: dict[str, Any], change: dict[str, Any], want: str) -> None:
    found = validate(PipelinePlanSpec.model_validate(good), replace(asked(), **change))

    assert any(want in violation for violation in found), found
