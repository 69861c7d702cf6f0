"""Scale to zero: when all replicas are removed, and how many start for held requests."""

import pytest
from tests.runtime.autoscaling.load_model import PlanSignals, StageSignals, plan_of

from partita_api.fields.quantity import Quantity
from partita_api.pipelineplan import PipelinePlan
from partita_api.session.autoscaling import Autoscaling
from partita_runtime.autoscaling.replicas import AutoscaleDecision, autoscale, planned_targets
from partita_runtime.autoscaling.stages import StageTarget

ROOM = {"big": 10, "small": 10}
PLAN = plan_of({"m": {"p": [("big", 1, 4, 100_000), ("small", 2, 8, 200_000)]}})
PLAN = PLAN.model_copy(update={"spec": PLAN.spec.model_copy(update={"throughput": Quantity(400)})})
"""400/s, on four accelerators of each pool."""
PLANNED = [4, 8]
AT_ZERO = tuple(StageTarget(t.module, t.pipeline, t.stage, 0) for t in planned_targets(PLAN))


def settings(mode: str = "Enabled", zero: bool = True) -> Autoscaling:
    return Autoscaling.model_validate({"mode": mode, "scaleToZero": {"afterSeconds": 300} if zero else None})


def decided(
    targets: tuple[StageTarget, ...],
    *,
    settings: Autoscaling = settings(),  # noqa: B008 - it is frozen
    idle_seconds: float = 0,
    held: int = 0,
    ready_seconds: float = 1000,
    room: dict[str, int] = ROOM,
    plan: str | None = "plan-1",
    keeps_planned: bool = False,
) -> AutoscaleDecision:
    signals = PlanSignals(plan, (), held, idle_seconds) if plan is not None else None
    return autoscale(
        settings,
        PLAN,
        targets,
        signals,
        room,
        keeps_planned=keeps_planned,
        ready_seconds=ready_seconds,
        slo_seconds=0.5,
    )


def counts(decision: AutoscaleDecision) -> list[int]:
    return [target.replicas for target in decision.targets]


def test_a_session_without_requests_releases_all_replicas() -> None:
    decision = decided(planned_targets(PLAN), idle_seconds=300)

    assert counts(decision) == [0, 0]
    assert "No request arrived for 300 s" in decision.reason


@pytest.mark.parametrize(
    ("seen"),
    [
        pytest.param({"idle_seconds": 299}, id="a recent request"),
        pytest.param({"idle_seconds": 500, "held": 1}, id="a request is held"),
        pytest.param({"idle_seconds": 500, "ready_seconds": 200}, id="its replicas started recently"),
        pytest.param({"idle_seconds": 500, "settings": settings(zero=False)}, id="it may not scale to zero"),
        pytest.param({"idle_seconds": 500, "plan": "plan-0"}, id="the frontends use another plan"),
        pytest.param({"idle_seconds": 500, "plan": None}, id="the frontends do not report"),
    ],
)
def test_replicas_stay_in_these_cases(seen: dict[str, object]) -> None:
    assert counts(decided(planned_targets(PLAN), **seen)) == PLANNED  # type: ignore[arg-type]


def test_advisory_mode_only_recommends_scale_to_zero() -> None:
    decision = decided(planned_targets(PLAN), settings=settings("Advisory"), idle_seconds=300)

    assert counts(decision) == PLANNED
    assert "Advice only" in decision.reason
    assert "all replicas could be removed" in decision.reason


def test_it_stays_at_zero_until_a_request_is_held() -> None:
    assert counts(decided(AT_ZERO, idle_seconds=10)) == [0, 0]
    assert counts(decided(AT_ZERO, plan=None)) == [0, 0], "there is no measurement of requests"


@pytest.mark.parametrize(
    ("held", "want"),
    [
        pytest.param(1, [1, 1], id="one replica per stage for the first request"),
        pytest.param(100, [2, 4], id="half of the planned replicas for half of an SLO's requests"),
        pytest.param(10_000, PLANNED, id="never more than planned"),
    ],
)
def test_enough_replicas_start_to_answer_held_requests_within_the_slo(held: int, want: list[int]) -> None:
    assert counts(decided(AT_ZERO, held=held)) == want


def test_the_planned_replicas_start_for_a_declared_rate() -> None:
    assert counts(decided(AT_ZERO, held=1, keeps_planned=True)) == PLANNED


def test_more_replicas_start_if_more_requests_are_held_before_the_first_are_ready() -> None:
    first = decided(AT_ZERO, held=1)
    assert counts(decided(first.targets, held=100, ready_seconds=0)) == [2, 4]
    assert counts(decided(first.targets, held=2, ready_seconds=0)) == [1, 1]


def test_replicas_that_just_started_for_held_requests_are_not_removed_as_idle() -> None:
    signals = PlanSignals("plan-1", tuple(StageSignals("m", "p", n, PLANNED[n], 1.0, 0.0) for n in (0, 1)), held=1)
    decision = autoscale(settings(), PLAN, planned_targets(PLAN), signals, ROOM, slo_seconds=0.5)
    assert counts(decision) == PLANNED


def test_it_does_not_scale_from_zero_without_accelerators_for_its_plan() -> None:
    decision = decided(AT_ZERO, held=3, room={"big": 4, "small": 3})

    assert counts(decision) == [0, 0]
    assert (
        "cannot scale from zero: plan plan-1 needs 4 accelerators of pool small, of which 3 are free" in decision.reason
    )


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(settings("Disabled", zero=False), id="disabled"),
        pytest.param(settings(zero=False), id="without scaleToZero"),
        pytest.param(settings("Advisory"), id="advisory"),
    ],
)
def test_without_scale_to_zero_it_gets_its_planned_replicas_back(changed: Autoscaling) -> None:
    assert counts(decided(AT_ZERO, settings=changed)) == PLANNED
    assert counts(decided(AT_ZERO, settings=changed, room={})) == [0, 0], "other sessions hold its accelerators"


def test_stages_without_a_ready_replica_are_not_shrunk() -> None:
    plan: PipelinePlan = plan_of({"m": {"p": [("big", 1, 4, 100_000)]}})
    coming_up = PlanSignals("plan-1", (StageSignals("m", "p", 0, 0, 1.0, 0.0),))
    decision = autoscale(settings(), plan, planned_targets(plan), coming_up, ROOM)
    assert counts(decision) == [4]
