"""The autoscaler's rule, case by case."""

from dataclasses import replace

import pytest
from tests.runtime.autoscaling.load_model import PlanSignals, flat_top, plan_of

from partita_api.pipelineplan import PipelinePlan
from partita_api.session.autoscaling import Autoscaling
from partita_runtime.autoscaling.load_level import RateHistory, RateSample
from partita_runtime.autoscaling.replicas import autoscale, planned_targets
from partita_runtime.autoscaling.stages import StageTarget

PLENTY = {"big": 1000, "small": 1000}

ONE_STAGE = plan_of({"m": {"p": [("big", 1, 10, 100_000)]}})
"""100 samples/s per replica: 1000/s."""
TWO_STAGES = plan_of({"m": {"p": [("big", 1, 4, 100_000), ("small", 1, 8, 200_000)]}})
"""400/s, matched 1 : 2."""
TWO_PIPELINES = plan_of({"m": {"p": [("big", 1, 2, 100_000)], "q": [("small", 2, 3, 100_000)]}})
"""200/s on big, then 300/s on halves of small."""


def settings(**changes: object) -> Autoscaling:
    return Autoscaling.model_validate({"badRateThreshold": "1%", "idleFractionThreshold": "30%"} | changes)


def counts(targets: tuple[StageTarget, ...]) -> list[int]:
    return [target.replicas for target in targets]


@pytest.mark.parametrize(
    ("plan", "load", "want"),
    [
        pytest.param(ONE_STAGE, 1000 / 0.8, [13], id="r = 20 % adds N r / (1 - r) = 2.5"),
        pytest.param(ONE_STAGE, 2000, [20], id="r = 50 % doubles"),
        pytest.param(ONE_STAGE, 1005, [10], id="below the bad rate's threshold nothing is added"),
        pytest.param(ONE_STAGE, 1020, [11], id="just above it, one"),
        pytest.param(ONE_STAGE, 100_000, [50], id="growth of one step is bounded"),
        pytest.param(ONE_STAGE, 700, [10], id="idle at the threshold, nothing is removed"),
        pytest.param(ONE_STAGE, 350, [5], id="idle replicas beyond the threshold are removed"),
        pytest.param(ONE_STAGE, 0, [1], id="without load one replica stays"),
        pytest.param(TWO_STAGES, 600, [6, 12], id="stages grow together"),
        pytest.param(TWO_STAGES, 140, [2, 4], id="stages shrink together"),
        pytest.param(TWO_PIPELINES, 600, [3, 3], id="the first pipeline grows first"),
        pytest.param(TWO_PIPELINES, 190, [2, 1], id="only a pipeline without work shrinks"),
    ],
)
def test_replicas_follow_the_load(plan: PipelinePlan, load: float, want: list[int]) -> None:
    present = planned_targets(plan)
    decision = autoscale(settings(), plan, present, flat_top(plan, present, {"m": load}), PLENTY)
    assert counts(decision.targets) == want
    assert decision.changed == (want != counts(present))


@pytest.mark.parametrize(
    ("replicas", "load", "want"),
    [
        pytest.param(10, 0, [10], id="without load the planned replicas stay"),
        pytest.param(20, 0, [10], id="replicas added for a burst are removed"),
        pytest.param(20, 900, [13], id="as far as the load allows"),
        pytest.param(10, 2000, [20], id="growth goes beyond the plan"),
    ],
)
def test_replicas_planned_for_a_declared_rate_stay(replicas: int, load: float, want: list[int]) -> None:
    present = tuple(replace(target, replicas=replicas) for target in planned_targets(ONE_STAGE))
    signals = flat_top(ONE_STAGE, present, {"m": load})

    decision = autoscale(settings(), ONE_STAGE, present, signals, PLENTY, keeps_planned=True)

    assert counts(decision.targets) == want


@pytest.mark.parametrize(
    ("free", "max_replicas", "want", "want_words"),
    [
        pytest.param({"big": 2, "small": 9}, 100, [4, 11], ["from 3 to 11"], id="the rest goes to the next pipeline"),
        pytest.param({"small": 1}, 100, [2, 6], ["do not allow"], id="a free GPU holds two halves"),
        pytest.param({}, 100, [2, 4], ["do not allow"], id="only its own half of a GPU is free"),
        pytest.param(PLENTY, 4, [4, 4], ["maxReplicas"], id="at most maxReplicas"),
        pytest.param(PLENTY, 100, [12, 3], ["from 2 to 12 replicas"], id="all fits"),
    ],
)
def test_growth_stays_within_bounds(
    free: dict[str, int], max_replicas: int, want: list[int], want_words: list[str]
) -> None:
    present = planned_targets(TWO_PIPELINES)
    measured = flat_top(TWO_PIPELINES, present, {"m": 1500})
    decision = autoscale(settings(maxReplicas=max_replicas), TWO_PIPELINES, present, measured, free)
    assert counts(decision.targets) == want
    assert [word for word in want_words if word not in decision.reason] == []


def test_a_pipeline_does_not_grow_if_only_some_of_its_stages_can() -> None:
    present = planned_targets(TWO_STAGES)
    measured = flat_top(TWO_STAGES, present, {"m": 800})
    decision = autoscale(settings(), TWO_STAGES, present, measured, {"big": 10, "small": 0})
    assert counts(decision.targets) == [4, 8]


@pytest.mark.parametrize(
    ("changes", "settled_seconds", "measured_plan", "want", "want_words"),
    [
        pytest.param({"mode": "Advisory"}, 100, "plan-1", [10], ["Advice only", "from 10 to 20"], id="advisory mode"),
        pytest.param({"mode": "Disabled"}, 100, "plan-1", [10], ["disabled"], id="disabled"),
        pytest.param({}, 12, "plan-1", [10], ["30 s", "coolDownSeconds"], id="cooling down"),
        pytest.param({}, 30, "plan-1", [20], ["50.0%", "from 10 to 20"], id="cooled down"),
        pytest.param({}, 100, "plan-0", [10], ["plan-1"], id="frontends still on another plan"),
        pytest.param({}, 100, None, [10], ["plan-1"], id="no frontend"),
    ],
)
def test_the_conditions_for_a_step(
    changes: dict[str, object],
    settled_seconds: float,
    measured_plan: str | None,
    want: list[int],
    want_words: list[str],
) -> None:
    present = planned_targets(ONE_STAGE)
    measured: PlanSignals | None = None
    if measured_plan:
        measured = replace(flat_top(ONE_STAGE, present, {"m": 2000}), plan=measured_plan)
    decision = autoscale(settings(**changes), ONE_STAGE, present, measured, PLENTY, settled_seconds)
    assert counts(decision.targets) == want
    assert [word for word in want_words if word not in decision.reason] == []


RISING = RateHistory(tuple(RateSample(10.0 * at, 4e6 + 1e6 * at) for at in range(7)))
"""From 4 to 10 million in a minute: 16 million after another minute."""
STEADY = RateHistory(tuple(RateSample(10.0 * at, 1e7) for at in range(7)))


@pytest.mark.parametrize(
    ("plan", "load", "rates", "changes", "want"),
    [
        pytest.param(ONE_STAGE, 1000, RISING, {}, [16], id="added for the expected load, before requests are lost"),
        pytest.param(ONE_STAGE, 1000, RISING, {"lookAheadSeconds": 30}, [13], id="only for the look-ahead time"),
        pytest.param(ONE_STAGE, 1000, RISING, {"lookAheadSeconds": 0}, [10], id="look-ahead is off"),
        pytest.param(ONE_STAGE, 1000, STEADY, {}, [10], id="a steady load needs no more"),
        pytest.param(ONE_STAGE, 600, RISING, {}, [10], id="enough for the expected load"),
        pytest.param(ONE_STAGE, 690, RISING, {}, [12], id="idle now, and too few for the expected load"),
        pytest.param(ONE_STAGE, 1250, RISING, {}, [20], id="lost requests are part of the trend"),
        pytest.param(ONE_STAGE, 350, RISING, {}, [8], id="fewer are removed while the load rises"),
        pytest.param(TWO_STAGES, 400, RISING, {}, [7, 13], id="stages grow together"),
        pytest.param(TWO_PIPELINES, 500, RISING, {}, [5, 3], id="the first pipeline grows first"),
    ],
)
def test_a_rising_load_counts_with_its_expected_value(
    plan: PipelinePlan, load: float, rates: RateHistory, changes: dict[str, object], want: list[int]
) -> None:
    present = planned_targets(plan)
    measured = flat_top(plan, present, {"m": load})
    decision = autoscale(settings(**changes), plan, present, measured, PLENTY, rates={"m": rates})
    assert counts(decision.targets) == want


def test_a_load_counts_with_its_value_when_a_node_is_there_if_a_replica_needs_one() -> None:
    present = planned_targets(ONE_STAGE)
    measured = flat_top(ONE_STAGE, present, {"m": 1000})
    short = settings(lookAheadSeconds=30)
    decision = autoscale(short, ONE_STAGE, present, measured, PLENTY, rates={"m": RISING}, provision_seconds=30)
    assert counts(decision.targets) == [16]
    assert "within 60 s" in decision.reason
    off = settings(lookAheadSeconds=0)
    decision = autoscale(off, ONE_STAGE, present, measured, PLENTY, rates={"m": RISING}, provision_seconds=30)
    assert not decision.changed


def test_a_step_for_a_rise_has_a_reason() -> None:
    present = planned_targets(ONE_STAGE)
    measured = flat_top(ONE_STAGE, present, {"m": 1000})
    decision = autoscale(settings(), ONE_STAGE, present, measured, PLENTY, rates={"m": RISING})
    assert "rises, by 60% within 60 s: stage 0 of p from 10 to 16 replicas" in decision.reason


def test_disabling_restores_the_planned_replicas() -> None:
    scaled = (StageTarget("m", "p", 0, 17),)
    decision = autoscale(settings(mode="Disabled"), ONE_STAGE, scaled, None, PLENTY)
    assert counts(decision.targets) == [10]
    assert decision.changed


def test_targets_of_another_plan_are_ignored_and_missing_ones_are_as_planned() -> None:
    decision = autoscale(settings(), ONE_STAGE, (StageTarget("m", "gone", 0, 5),), None, PLENTY)
    assert decision.targets == (StageTarget("m", "p", 0, 10),)


def test_no_replicas_are_added_while_some_are_still_starting() -> None:
    present = planned_targets(ONE_STAGE)
    measured = flat_top(ONE_STAGE, present, {"m": 2000})
    starting = replace(measured, stages=(replace(measured.stages[0], ready=7),))
    decision = autoscale(settings(), ONE_STAGE, present, starting, PLENTY)
    assert not decision.changed
    assert "3 replicas are still starting" in decision.reason


def test_late_answers_from_idle_gpus_add_no_gpus() -> None:
    present = planned_targets(ONE_STAGE)
    measured = flat_top(ONE_STAGE, present, {"m": 400})
    late = replace(measured, stages=(replace(measured.stages[0], bad_rate=1.0),))
    decision = autoscale(settings(), ONE_STAGE, present, late, PLENTY)
    assert not decision.changed
    assert "planner.marginPercent" in decision.reason
