"""The autoscaler's rule, case by case."""

from dataclasses import replace

import pytest
from tests.runtime.autoscaling.load_model import PlanSignals, flat_top, plan_of

from partita_api.autoscaling import Autoscaling
from partita_api.pipelineplan import PipelinePlan
from partita_runtime.autoscaling.load_level import RateHistory, RateSample
from partita_runtime.autoscaling.replicas import autoscale, planned_targets
from partita_runtime.autoscaling.stages import StageTarget

PLENTY = {"big": 1000, "small": 1000}

ONE_STAGE = plan_of({"m": {"p": [("big", 1, 10, 100_000)]}})
"""100 samples/s a replica: 1000/s."""
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
        pytest.param(ONE_STAGE, 1000 / 0.8, [13], id="r = 20 % asks for N r / (1 - r) = 2.5 more"),
        pytest.param(ONE_STAGE, 2000, [20], id="r = 50 % doubles"),
        pytest.param(ONE_STAGE, 1005, [10], id="below the bad rate's threshold nothing is added"),
        pytest.param(ONE_STAGE, 1020, [11], id="just above it, one"),
        pytest.param(ONE_STAGE, 100_000, [50], id="growth of one step is bounded"),
        pytest.param(ONE_STAGE, 700, [10], id="idle at the threshold, nothing is given back"),
        pytest.param(ONE_STAGE, 350, [5], id="what is idle beyond the threshold is given back"),
        pytest.param(ONE_STAGE, 0, [1], id="without load one replica stays"),
        pytest.param(TWO_STAGES, 600, [6, 12], id="stages grow matched"),
        pytest.param(TWO_STAGES, 140, [2, 4], id="stages shrink matched"),
        pytest.param(TWO_PIPELINES, 600, [3, 3], id="the first pipeline grows first"),
        pytest.param(TWO_PIPELINES, 190, [2, 1], id="a pipeline without work shrinks alone"),
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
        pytest.param(20, 0, [10], id="what was added for a burst is given back"),
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
        pytest.param({"small": 1}, 100, [2, 6], ["do not allow"], id="a GPU that is free holds two halves"),
        pytest.param({}, 100, [2, 4], ["do not allow"], id="nothing is free but the half of a GPU it has"),
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


def test_a_pipeline_does_not_grow_where_only_some_of_its_stages_could() -> None:
    present = planned_targets(TWO_STAGES)
    measured = flat_top(TWO_STAGES, present, {"m": 800})
    decision = autoscale(settings(), TWO_STAGES, present, measured, {"big": 10, "small": 0})
    assert counts(decision.targets) == [4, 8]


@pytest.mark.parametrize(
    ("changes", "settled_seconds", "measured_plan", "want", "want_words"),
    [
        pytest.param({"mode": "Advisory"}, 100, "plan-1", [10], ["Advice only", "from 10 to 20"], id="advice only"),
        pytest.param({"mode": "Disabled"}, 100, "plan-1", [10], ["disabled"], id="disabled"),
        pytest.param({}, 12, "plan-1", [10], ["18 s"], id="cooling down"),
        pytest.param({}, 30, "plan-1", [20], ["50.0%", "from 10 to 20"], id="cooled down"),
        pytest.param({}, 100, "plan-0", [10], ["plan-1"], id="frontends still on another plan"),
        pytest.param({}, 100, None, [10], ["plan-1"], id="no frontend"),
    ],
)
def test_when_it_may_act(
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
"""From 4 to 10 million in a minute: 16 in another."""
STEADY = RateHistory(tuple(RateSample(10.0 * at, 1e7) for at in range(7)))


@pytest.mark.parametrize(
    ("plan", "load", "rates", "changes", "want"),
    [
        pytest.param(ONE_STAGE, 1000, RISING, {}, [16], id="added for what comes, before anything is lost"),
        pytest.param(ONE_STAGE, 1000, RISING, {"lookAheadSeconds": 30}, [13], id="as far as it looks ahead"),
        pytest.param(ONE_STAGE, 1000, RISING, {"lookAheadSeconds": 0}, [10], id="it may not look ahead"),
        pytest.param(ONE_STAGE, 1000, STEADY, {}, [10], id="a steady load asks for no more"),
        pytest.param(ONE_STAGE, 600, RISING, {}, [10], id="there is enough for what comes"),
        pytest.param(ONE_STAGE, 690, RISING, {}, [12], id="idle, and too few for what comes"),
        pytest.param(ONE_STAGE, 1250, RISING, {}, [20], id="what is lost is carried on, too"),
        pytest.param(ONE_STAGE, 350, RISING, {}, [8], id="less is given back while the load rises"),
        pytest.param(TWO_STAGES, 400, RISING, {}, [7, 13], id="stages grow matched"),
        pytest.param(TWO_PIPELINES, 500, RISING, {}, [5, 3], id="the first pipeline grows first"),
    ],
)
def test_a_load_that_rises_counts_as_what_it_will_be(
    plan: PipelinePlan, load: float, rates: RateHistory, changes: dict[str, object], want: list[int]
) -> None:
    present = planned_targets(plan)
    measured = flat_top(plan, present, {"m": load})
    decision = autoscale(settings(**changes), plan, present, measured, PLENTY, rates={"m": rates})
    assert counts(decision.targets) == want


def test_a_step_for_a_rise_says_so() -> None:
    present = planned_targets(ONE_STAGE)
    measured = flat_top(ONE_STAGE, present, {"m": 1000})
    decision = autoscale(settings(), ONE_STAGE, present, measured, PLENTY, rates={"m": RISING})
    assert "rises, by 60% within 60 s: stage 0 of p from 10 to 16 replicas" in decision.reason


def test_disabling_brings_the_planned_replicas_back() -> None:
    scaled = (StageTarget("m", "p", 0, 17),)
    decision = autoscale(settings(mode="Disabled"), ONE_STAGE, scaled, None, PLENTY)
    assert counts(decision.targets) == [10]
    assert decision.changed


def test_targets_of_another_plan_are_left_out_and_missing_ones_are_as_planned() -> None:
    decision = autoscale(settings(), ONE_STAGE, (StageTarget("m", "gone", 0, 5),), None, PLENTY)
    assert decision.targets == (StageTarget("m", "p", 0, 10),)


def test_no_more_is_asked_for_while_replicas_are_still_coming_up() -> None:
    present = planned_targets(ONE_STAGE)
    measured = flat_top(ONE_STAGE, present, {"m": 2000})
    starting = replace(measured, stages=(replace(measured.stages[0], ready=7),))
    decision = autoscale(settings(), ONE_STAGE, present, starting, PLENTY)
    assert not decision.changed
    assert "3 replicas are still starting" in decision.reason


def test_late_answers_from_idle_gpus_do_not_ask_for_more_gpus() -> None:
    present = planned_targets(ONE_STAGE)
    measured = flat_top(ONE_STAGE, present, {"m": 400})
    late = replace(measured, stages=(replace(measured.stages[0], bad_rate=1.0),))
    decision = autoscale(settings(), ONE_STAGE, present, late, PLENTY)
    assert not decision.changed
    assert "planner.marginPercent" in decision.reason
