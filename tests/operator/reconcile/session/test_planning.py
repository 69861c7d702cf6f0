"""When a plan is made, which one is desired, and what happens to the others."""

import pytest
from tests.builders import SessionBuilder, pool, session
from tests.operator.doubles import one_stage_plan, signals
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_api.fields.approval import Approval
from partita_api.fields.label_selector import LabelSelector
from partita_api.inferencesession import Rate, RateSource
from partita_api.session.autoscaling import Autoscaling
from partita_operator.reconcile.session.planning import SEARCH_AGAIN_SECONDS
from partita_planner.problem import NoPlan, NoPlanReason, Outcome, PlanningProblem

DETECTOR = session("traffic").model("detector").rate(150)
MANUAL = DETECTOR.planner(approval=Approval.MANUAL)
KEY = "default/traffic"


def cluster(*sessions: SessionBuilder, gpus: int = 8) -> SimulatedCluster:
    made = SimulatedCluster()
    made.add(pool("fast").gpus(gpus).build(), *(s.build() for s in sessions))
    return made


def settled(*sessions: SessionBuilder, gpus: int = 8) -> SimulatedCluster:
    made = cluster(*sessions, gpus=gpus)
    made.run(15)
    return made


def active(made: SimulatedCluster, name: str = "traffic") -> str:
    found = made.session(name).status.current_plan
    assert found is not None
    return found.name


@pytest.mark.parametrize(
    ("change", "want_search"),
    [
        pytest.param(DETECTOR, False, id="nothing"),
        pytest.param(DETECTOR.slo(50), True, id="SLO"),
        pytest.param(DETECTOR.rate(160), True, id="rate"),
        pytest.param(DETECTOR.planner(margin_percent=30), True, id="margin"),
        pytest.param(DETECTOR.function("crop").edge("detector", "crop"), True, id="another module"),
        pytest.param(DETECTOR.with_spec(availability={"survive_loss": "Replica"}), True, id="availability"),
        pytest.param(DETECTOR.planner(time_limit_seconds=60), False, id="time limit"),
        pytest.param(DETECTOR.with_spec(autoscaling=Autoscaling(max_replicas=7)), False, id="autoscaling"),
        pytest.param(DETECTOR.with_spec(batching={"policy": "Eager"}), False, id="batching policy"),
    ],
)
def test_only_inputs_of_plans_lead_to_another_search(change: SessionBuilder, want_search: bool) -> None:
    made = settled(DETECTOR)
    assert len(made.problems) == 1
    made.add(change.build())
    made.run(15)
    assert len(made.problems) == 1 + want_search
    assert made.condition("traffic", "Ready") == ("True", "Serving")


@pytest.mark.parametrize(
    ("change", "want_search"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"price_per_hour": "3"}, True, id="price"),
        pytest.param({"bandwidth": "1G"}, True, id="bandwidth"),
        pytest.param({"node_selector": LabelSelector(match_labels={"a": "b"})}, False, id="how nodes are found"),
    ],
)
def test_a_change_of_a_pool_leads_to_a_search_if_it_could_change_plans(
    change: dict[str, object], want_search: bool
) -> None:
    made = settled(DETECTOR)
    built = pool("fast").gpus(8).build()
    made.add(built.model_copy(update={"spec": type(built.spec).model_validate(built.spec.model_dump() | change)}))
    made.run(15)
    assert len(made.problems) == 1 + want_search


def test_the_search_receives_the_current_plan() -> None:
    made = settled(DETECTOR)
    before = made.plans[active(made)]
    made.add(DETECTOR.rate(350).build())
    made.run(15)
    assert made.problems[0].current_plan is None
    assert made.problems[1].current_plan == before.spec


def test_a_plan_records_its_inputs() -> None:
    made = settled(DETECTOR)
    plan = made.plans[active(made)]
    assert plan.metadata.name == f"traffic-{plan.spec.inputs_digest[:8]}"
    assert plan.spec.session.generation == 1
    assert [(ref.module, ref.pool) for ref in plan.spec.profiles] == [("detector", "fast")]
    assert plan.metadata.labels == {"partita.dev/session": "traffic"}


def test_if_the_same_plan_is_found_again_nothing_moves() -> None:
    made = settled(DETECTOR)
    before = active(made)
    made.add(DETECTOR.slo(90).build())
    made.run(15)
    assert len(made.problems) == 2
    assert active(made) == before
    assert made.made_plans == [before]
    assert made.engine.applied[KEY].session.spec.slo.latency_ms == 90, "the frontends receive the new SLO"


def test_with_earlier_inputs_the_earlier_plan_returns() -> None:
    made = settled(DETECTOR)
    first = active(made)
    made.add(DETECTOR.rate(350).build())
    made.run(15)
    assert active(made) != first
    made.add(DETECTOR.build())
    made.run(15)
    assert active(made) == first
    assert len(made.problems) == 2, "without another search"


def test_a_plan_kept_for_a_rollback_is_not_used_when_its_gpus_are_taken() -> None:
    made = settled(DETECTOR.rate(550))
    first = active(made)
    made.add(DETECTOR.rate(150).build())
    made.run(15)
    made.add(session("greedy").model("detector").rate(500).build())
    made.run(15)
    made.add(DETECTOR.rate(550).build())
    made.run(15)
    assert made.condition("traffic", "Planned") == ("False", "InsufficientCapacity")
    assert first not in made.plans
    assert made.engine.applied[KEY].plan.metadata.name != first


def test_history_is_bounded_and_the_last_plans_are_kept() -> None:
    made = settled(DETECTOR)
    names = [active(made)]
    for rate in range(160, 160 + 12 * 10, 10):
        made.add(DETECTOR.rate(rate).build())
        made.run(6)
        names.append(active(made))
    status = made.session("traffic").status
    assert len(status.history) == 10
    assert list(status.history) == names[-2:-12:-1]
    assert set(made.plans) == {names[-1], *names[-4:-1]}


def test_a_manual_plan_waits_for_its_approval() -> None:
    made = settled(MANUAL)
    (name,) = made.plans
    assert made.session("traffic").status.pending_plan == name
    assert KEY not in made.engine.applied
    made.approve(name)
    made.run(5)
    assert active(made) == name
    assert made.session("traffic").status.pending_plan is None


def test_while_a_manual_plan_waits_the_current_plan_serves() -> None:
    made = settled(DETECTOR)
    first = active(made)
    made.add(MANUAL.rate(350).build())
    made.run(30)
    status = made.session("traffic").status
    assert active(made) == made.engine.applied[KEY].plan.metadata.name == first
    assert status.pending_plan is not None
    made.approve(status.pending_plan)
    made.run(10)
    assert active(made) == status.pending_plan


def test_a_waiting_plan_is_rolled_out_once_approval_is_automatic() -> None:
    made = settled(MANUAL)
    made.add(DETECTOR.build())
    made.run(10)
    assert made.condition("traffic", "Ready") == ("True", "Serving")
    assert len(made.made_plans) == 1


def test_a_plan_of_newer_inputs_replaces_a_waiting_plan() -> None:
    made = settled(MANUAL)
    (first,) = made.plans
    made.add(MANUAL.rate(350).build())
    made.run(10)
    (second,) = made.plans
    assert second != first


def test_two_sessions_never_get_the_same_gpus() -> None:
    made = settled(DETECTOR.rate(500), session("second").model("detector").rate(500), gpus=8)
    ready = [made.condition(name, "Planned") for name in ("traffic", "second")]
    assert sorted(ready) == [("False", "InsufficientCapacity"), ("True", "PlanReady")]


def test_a_waiting_session_is_planned_when_gpus_become_free() -> None:
    made = settled(DETECTOR.rate(500), gpus=8)
    made.add(session("second").model("detector").rate(500).build())
    made.run(15)
    assert made.condition("second", "Planned") == ("False", "InsufficientCapacity")
    made.delete(KEY)
    made.run(15)
    assert made.condition("second", "Ready") == ("True", "Serving")


def test_a_search_without_an_answer_is_repeated_after_a_while() -> None:
    made = cluster(DETECTOR)
    answers: list[Outcome] = [NoPlan(NoPlanReason.TIME_LIMIT, "No answer in time; raise planner.timeLimitSeconds.")]

    def solve(problem: PlanningProblem) -> Outcome:
        return answers.pop() if answers else one_stage_plan(problem)

    made.solve = solve
    made.run(60)
    assert made.condition("traffic", "Ready") == ("False", "TimeLimit")
    assert len(made.problems) == 1
    made.run(SEARCH_AGAIN_SECONDS, every=5)
    assert made.condition("traffic", "Ready") == ("True", "Serving")


OBSERVED = DETECTOR.with_spec(rate=Rate(requests_per_second=150, source=RateSource.OBSERVED))


def offered(made: SimulatedCluster, rate: float, seconds: float) -> None:
    made.engine.reported[KEY] = signals(None, rate)
    made.run(seconds, every=5)


def test_an_observed_rate_that_lasts_leads_to_another_plan() -> None:
    made = settled(OBSERVED)
    offered(made, 0, 600)
    assert [p.rate for p in made.problems] == [150], "until requests are measured, the declared rate counts"
    offered(made, 330, 30)
    assert len(made.problems) == 1, "it may be a burst"
    offered(made, 330, 60)
    assert [p.rate for p in made.problems] == [150, 330]
    assert made.session("traffic").status.planned_rate == "330"


def test_an_observed_rate_survives_a_restart_of_the_operator() -> None:
    made = settled(OBSERVED)
    offered(made, 330, 90)
    made.restart()
    made.engine.reported.clear()
    made.run(60)
    assert [p.rate for p in made.problems] == [150, 330]


def test_a_declared_rate_ignores_the_observed_one() -> None:
    made = settled(DETECTOR)
    offered(made, 700, 900)
    assert len(made.problems) == 1
    assert made.session("traffic").status.planned_rate is None
