"""What the console's pages show of a cluster's objects."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.builders import session
from tests.operator.cli.console.cluster_objects import (
    READY,
    TRAFFIC,
    cluster,
    condition,
    plan_object,
    pool_object,
    served,
    signals,
    typical,
    with_status,
)

from partita_api.conditions import Condition, ConditionType
from partita_api.pipelineplan import Alternative, Constraint, ConstraintType, Evidence, PipelinePlan
from partita_operator.console.reading.snapshot import ClusterSnapshot
from partita_operator.console.views.findings import Tone, condition_rows
from partita_operator.console.views.plans import plan_view
from partita_operator.console.views.pools import pool_page, pool_rows
from partita_operator.console.views.session_page import plan_page, session_page
from partita_operator.console.views.sessions import (
    PAGE_SIZE,
    QueryError,
    SessionQuery,
    SessionState,
    session_row,
    sessions_part,
)
from partita_operator.console.web.pages import ago, money, number, percent
from partita_operator.reconcile.reasons import meaning_of
from partita_planner.problem import NoPlanReason

NOT_READY = condition("Ready", "False", "Profiling")
STALLED = condition("Stalled", "True", "InvalidSpec")
HELD = condition("Held", "True", "AwaitingApproval")
MISSED = condition("SLOMet", "False", "SLOMissed")


@pytest.mark.parametrize(
    ("conditions", "want", "reason"),
    [
        pytest.param((), SessionState.IN_PROGRESS, "not seen by the operator", id="new"),
        pytest.param((NOT_READY,), SessionState.IN_PROGRESS, "Profiling", id="profiling"),
        pytest.param((NOT_READY, STALLED), SessionState.ACTION_NEEDED, "Profiling", id="stalled"),
        pytest.param(
            (condition("Ready", "False", "SLOTooTight"),), SessionState.ACTION_NEEDED, "SLOTooTight", id="no plan"
        ),
        pytest.param((NOT_READY, HELD), SessionState.HELD, "AwaitingApproval", id="held before the first plan"),
        pytest.param((READY, HELD, MISSED), SessionState.HELD, "AwaitingApproval", id="held while it serves"),
        pytest.param((READY, MISSED), SessionState.SLO_MISSED, "SLOMissed", id="SLO missed"),
        pytest.param((READY, condition("SLOMet", "Unknown", "NoTraffic")), SessionState.SERVING, "Serving", id="idle"),
        pytest.param(
            (condition("Ready", "True", "ScaledToZero"), MISSED),
            SessionState.SCALED_TO_ZERO,
            "ScaledToZero",
            id="scaled to zero",
        ),
        pytest.param(
            (condition("Ready", "False", "FromTheFuture"),), SessionState.IN_PROGRESS, "FromTheFuture", id="unknown"
        ),
    ],
)
def test_the_state_of_a_session(conditions: tuple[Condition, ...], want: SessionState, reason: str) -> None:
    row = session_row(with_status(TRAFFIC.build(), conditions=conditions))

    assert (row.state, row.reason) == (want, reason)


def test_a_session_with_a_new_spec_is_in_progress() -> None:
    seen = with_status(TRAFFIC.build(), conditions=(READY,))
    changed = seen.model_copy(update={"metadata": seen.metadata.model_copy(update={"generation": 2})})

    assert session_row(changed).state is SessionState.IN_PROGRESS


def test_attainment_is_known_only_with_traffic() -> None:
    measured = session_row(with_status(TRAFFIC.build(), signals=signals(bad_rate="0.02")))
    idle = session_row(with_status(TRAFFIC.build(), signals=signals(offered_rate="0")))

    assert (measured.attainment, measured.misses_target) == (0.98, True)
    assert (idle.attainment, idle.p99_ms, idle.offered_rate, idle.misses_target) == (None, None, 0, False)


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(condition("Ready", "True", "Serving"), Tone.GOOD, id="as desired"),
        pytest.param(condition("Ready", "False", "Profiling"), Tone.WAITING, id="in progress"),
        pytest.param(condition("Ready", "False", "SLOTooTight"), Tone.BAD, id="no plan"),
        pytest.param(condition("Ready", "Unknown", "EngineUnavailable"), Tone.BAD, id="unknown for a problem"),
        pytest.param(condition("SLOMet", "Unknown", "NoTraffic"), Tone.QUIET, id="unknown for no problem"),
        pytest.param(condition("Stalled", "False", "Settled"), Tone.QUIET, id="not stalled"),
        pytest.param(condition("Stalled", "True", "InvalidSpec"), Tone.BAD, id="stalled"),
        pytest.param(condition("Held", "True", "Paused"), Tone.WAITING, id="held"),
        pytest.param(condition("Weather", "False", "Rain"), Tone.WAITING, id="of another version"),
    ],
)
def test_the_tone_of_a_condition(found: Condition, want: Tone) -> None:
    (row,) = condition_rows((found,), 1)

    assert row.tone is want


def test_problems_come_first_and_have_their_meaning() -> None:
    rows = condition_rows((READY, condition("Stalled", "False", "Settled"), MISSED, NOT_READY), generation=2)

    assert [row.tone for row in rows] == [Tone.BAD, Tone.WAITING, Tone.GOOD, Tone.QUIET]
    assert rows[0].meaning == "attainment over the last window reached the target"
    assert rows[0].reason_meaning == "too few requests were answered in time over the last window"
    assert all(row.outdated for row in rows)


def test_every_type_and_every_reason_of_a_missing_plan_has_a_meaning() -> None:
    assert all(len(type.meaning) > 10 for type in ConditionType)
    assert all(len(meaning_of(reason)) > 10 for reason in NoPlanReason)
    assert meaning_of("FromTheFuture") == ""


def listed(query: SessionQuery, count: int = 120) -> list[str]:
    built = [
        with_status(replace(session(f"app-{n:03}").model("m"), namespace=f"team-{n % 3}").build()) for n in range(count)
    ]
    return [row.key for row in sessions_part(built, query).rows]


@pytest.mark.parametrize(
    ("query", "first", "rows"),
    [
        pytest.param(SessionQuery(), "team-0/app-000", PAGE_SIZE, id="first page"),
        pytest.param(SessionQuery(page=3), "team-2/app-062", 20, id="last page"),
        pytest.param(SessionQuery(page=99), "team-2/app-062", 20, id="a page after the last one"),
        pytest.param(SessionQuery(namespace="team-1"), "team-1/app-001", 40, id="namespace"),
        pytest.param(SessionQuery(text="-11"), "team-0/app-111", 10, id="part of a name"),
        pytest.param(SessionQuery(text="team-2/app-00"), "team-2/app-002", 3, id="part of a key"),
        pytest.param(SessionQuery(state=SessionState.SERVING), "", 0, id="no session in the state"),
    ],
)
def test_sessions_are_filtered_page_by_page(query: SessionQuery, first: str, rows: int) -> None:
    keys = listed(query)

    assert len(keys) == rows
    assert keys[:1] == ([first] if first else [])


def test_states_are_counted_without_the_chosen_state() -> None:
    ready = with_status(TRAFFIC.build(), conditions=(READY,))
    new = with_status(replace(TRAFFIC, name="new").build())
    part = sessions_part([ready, new], SessionQuery(state=SessionState.SERVING))

    assert part.states == ((SessionState.IN_PROGRESS, 1), (SessionState.SERVING, 1))
    assert (part.matching, part.total, part.pages) == (1, 2, 1)


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param({"page": "0"}, id="page 0"),
        pytest.param({"page": "-1"}, id="negative page"),
        pytest.param({"page": "x"}, id="a page that is no number"),
        pytest.param({"page": "\u0663"}, id="a digit of another script"),
        pytest.param({"page": "9" * 5000}, id="a page that is huge"),
        pytest.param({"state": "happy"}, id="no state"),
        pytest.param({"q": "x" * 201}, id="a long text"),
    ],
)
def test_queries_that_cannot_be_used_are_refused(parameters: dict[str, str]) -> None:
    with pytest.raises(QueryError, match="must"):
        SessionQuery.parse(parameters)


def test_a_query_is_parsed() -> None:
    query = SessionQuery.parse({"page": "2", "state": "SLO missed", "q": " traffic ", "namespace": "a"})

    assert query == SessionQuery("traffic", "a", SessionState.SLO_MISSED, 2)


def test_a_pool_shows_who_holds_its_accelerators() -> None:
    found = typical()
    held = found.plans["default/traffic-2"].spec.gpus()
    rows = {row.name: row for row in pool_rows(found)}

    assert {name: sum(h.accelerators or 0 for h in row.holders) for name, row in rows.items() if row.holders} == held
    for name, row in rows.items():
        assert row.allocated == held.get(name, 0)
        assert row.cost_per_hour == pytest.approx(row.allocated * row.price_per_hour)


def test_sessions_that_may_not_be_read_are_named_without_numbers() -> None:
    (row,) = pool_rows(cluster(pool_object(0, allocated="2", sessions=("other/secret",))))
    (holder,) = row.holders

    assert (holder.namespace, holder.name, holder.accelerators, holder.readable) == ("other", "secret", None, False)


def test_a_session_has_its_plan_with_batch_sizes_and_predicted_latencies() -> None:
    found = typical()
    page = session_page(ClusterSnapshot(cluster=found), "default/traffic")
    spec = found.plans["default/traffic-2"].spec

    assert page is not None
    assert page.plan is not None
    assert [(row.module, row.batch_size, row.latency_ms) for row in page.plan.stages] == [
        (module.name, pipeline.batch_size, stage.latency_micros / 1000) for module, pipeline, _, stage in spec.stages()
    ]
    assert all(row.ready == row.desired for row in page.plan.stages)
    assert page.diagram is not None
    assert [card.name for card in page.diagram.cards] == ["detector", "crop", "vehicle", "person"]
    assert {pool for pool, _ in page.diagram.pools} == set(spec.gpus())


def test_the_history_has_roles_and_counts_differences() -> None:
    page = session_page(ClusterSnapshot(cluster=typical()), "default/traffic")

    assert page is not None
    assert [(line.name, line.role, line.kept) for line in page.plans] == [
        ("traffic-2", "current", True),
        ("traffic-1", "earlier", True),
        ("traffic-0", "earlier", False),
    ]
    current, earlier, gone = page.plans
    assert current.differences is not None
    assert current.differences > 0
    assert (earlier.differences, gone.differences, gone.cost_per_hour) == (None, None, None)


def test_a_plan_is_compared_with_the_one_before_it_and_the_current_one() -> None:
    snapshot = ClusterSnapshot(cluster=typical())
    current, earlier = (
        plan_page(snapshot, "default/traffic", "traffic-2"),
        plan_page(snapshot, "default/traffic", "traffic-1"),
    )

    assert current is not None
    assert [comparison.title for comparison in current.comparisons] == [
        "Differences from traffic-1, the plan before it"
    ]
    assert any(change.what == "throughput in requests/s" for change in current.comparisons[0].differences)
    assert earlier is not None
    assert [comparison.title for comparison in earlier.comparisons] == ["Differences from traffic-2, the current plan"]
    assert plan_page(snapshot, "default/traffic", "traffic-0") is None
    assert plan_page(snapshot, "default/other", "traffic-2") is None


def test_a_session_without_a_plan_shows_its_modules() -> None:
    new = with_status(TRAFFIC.build())
    page = session_page(ClusterSnapshot(cluster=cluster(new)), "default/traffic")

    assert page is not None
    assert page.plan is None
    assert page.diagram is not None
    assert [card.subtitle for card in page.diagram.cards] == ["model", "CPU function", "model", "model"]


def test_an_earlier_plan_is_drawn_with_the_modules_that_it_was_made_for() -> None:
    plan = plan_object(TRAFFIC, "traffic-1", 60)
    renamed = served(session("traffic").slo(200).model("successor"), plan)
    page = session_page(ClusterSnapshot(cluster=cluster(renamed, plan)), "default/traffic")

    assert page is not None
    assert page.diagram is not None
    assert page.diagram.cards[0].name == "detector"


def test_a_spec_that_cannot_be_used_is_explained_and_not_drawn() -> None:
    broken = with_status(TRAFFIC.build())
    snapshot = ClusterSnapshot(cluster=cluster(broken, unreadable={"default/traffic": "The spec is wrong: slo"}))
    page = session_page(snapshot, "default/traffic")

    assert page is not None
    assert (page.complaint, page.diagram) == ("The spec is wrong: slo", None)


def test_edges_in_a_cycle_are_not_drawn() -> None:
    cycle = session("loop").model("a").model("b").edge("a", "b").edge("b", "a").build()
    page = session_page(ClusterSnapshot(cluster=cluster(with_status(cycle))), "default/loop")

    assert page is not None
    assert page.diagram is None


def explained(*constraints: Constraint, runner_up: Alternative | None = None) -> PipelinePlan:
    plan = plan_object(TRAFFIC, "traffic-1", 60)
    solution = plan.spec.solution.model_copy(update={"constraints": constraints, "runner_up": runner_up})
    alternatives = (runner_up,) if runner_up is not None else ()
    spec = plan.spec.model_copy(update={"solution": solution, "alternatives": alternatives})
    return plan.model_copy(update={"spec": spec})


def test_shadow_prices_are_in_words() -> None:
    of_pool = Constraint(type=ConstraintType.GPUS, pool="fast", binding=True, worth="0.5", evidence=Evidence.RESOLVED)
    of_slo = Constraint(type=ConstraintType.LATENCY, modules=("detector",), binding=False)
    best = Alternative(strategy="whole", without_pool="fast", feasible=False, summary="no plan")
    view = plan_view(TRAFFIC.build(), explained(of_pool, of_slo, runner_up=best), ("fast", "slow"))

    pool_row, slo_row = view.constraints
    assert (pool_row.what, pool_row.binding, pool_row.worth, pool_row.evidence) == (
        "accelerators of fast",
        True,
        "0.5 an hour less for one more",
        "planned again with that much more",
    )
    assert (slo_row.what, slo_row.binding, slo_row.worth) == ("latency of detector", False, "")
    (alternative,) = view.alternatives
    assert (alternative.strategy, alternative.value, alternative.is_runner_up) == (
        "whole without fast",
        "no plan",
        True,
    )


def test_a_pool_page_has_quotas_and_conditions() -> None:
    page = pool_page(ClusterSnapshot(cluster=typical()), "slow")

    assert page is not None
    assert (page.row.status, page.row.tone, page.row.colour) == ("Available", Tone.GOOD, 1)
    assert [row.type for row in page.conditions] == ["Ready"]
    assert pool_page(ClusterSnapshot(cluster=typical()), "none") is None


NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "want"),
    [
        pytest.param(NOW - timedelta(seconds=5), "5 s ago", id="seconds"),
        pytest.param("2026-01-02T11:55:00Z", "5 min ago", id="minutes, as text"),
        pytest.param("2026-01-02T06:00:00", "6 h ago", id="hours, without a time zone"),
        pytest.param(NOW - timedelta(days=3), "3 d ago", id="days"),
        pytest.param(NOW + timedelta(seconds=5), "0 s ago", id="a clock that differs"),
        pytest.param("soon", "soon", id="no time"),
        pytest.param(None, "–", id="unknown"),
    ],
)
def test_times_are_in_words(moment: datetime | str | None, want: str) -> None:
    assert ago(NOW, moment) == want


def test_numbers_are_short() -> None:
    assert [number(None), number(3), number(1234.56), number(0.04)] == ["–", "3", "1,234.6", "0"]
    assert [percent(0.25), percent(0.99876, 2), money(2.5), money(None)] == ["25 %", "99.88 %", "2.50", "–"]
