"""Sessions as versions of another one: what its frontends are told, and what its status and conditions say."""

from typing import Any

import pytest
from tests.builders import SessionBuilder, pool, session
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_api.fields.approval import Approval
from partita_api.inferencesession import Engine, EngineType, Signals
from partita_api.quality import Quality
from partita_api.session.autoscaling import Autoscaling, ScaleToZero
from partita_api.session.versions import Version
from partita_operator.ports import ServingSignals
from partita_operator.reconcile.admission import judge_session
from partita_operator.settings.model import OperatorSettings
from partita_runtime.serving.deploy.version_routes import ShadowRoute, VersionRoute

PLAIN = session("traffic").model("detector")
SECOND = session("traffic-v2").model("detector").slo(200)
FAILING = session("traffic-v2").model("detector").slo(1)
"""It has no plan."""


def with_versions(*versions: dict[str, Any], builder: SessionBuilder = PLAIN) -> SessionBuilder:
    return builder.with_spec(versions=tuple(Version.model_validate(version) for version in versions))


CANARY = with_versions({"name": "2", "session": "traffic-v2", "share": "10%"})


def settled(*sessions: SessionBuilder) -> SimulatedCluster:
    made = SimulatedCluster()
    made.add(pool("fast").build(), *(each.build() for each in sessions))
    made.run(15)
    return made


def routes(made: SimulatedCluster) -> tuple[VersionRoute, ...]:
    return made.engine.applied["default/traffic"].versions


def ready(made: SimulatedCluster) -> tuple[str, str]:
    return made.condition("traffic", "VersionsReady")


def message(made: SimulatedCluster) -> str:
    conditions = made.session("traffic").status.conditions
    return next(c.message for c in conditions if c.type == "VersionsReady")


def test_a_version_that_is_ready_gets_its_share() -> None:
    made = settled(CANARY, SECOND)
    (route,) = routes(made)
    assert (route.url, route.problem, route.share) == ("http://engine/default/traffic-v2", "", 0.1)
    assert (ready(made), message(made)) == (("True", "VersionsReady"), "10% of the requests go to version 2.")
    status = made.session("traffic").status
    assert [(v.name, v.session, v.ready, v.share) for v in status.versions] == [("2", "traffic-v2", True, "10%")]
    assert status.version_shares == "2=10%"


@pytest.mark.parametrize(
    ("others", "want_url", "want_reason", "want_message"),
    [
        pytest.param([], "", "VersionMissing", "does not exist", id="missing"),
        pytest.param(
            [FAILING], "http://engine/default/traffic-v2", "VersionNotReady", "is not ready", id="without a plan"
        ),
        pytest.param(
            [SECOND.with_spec(engine=Engine(type=EngineType.KUBERAY))],
            "",
            "VersionElsewhere",
            "has another engine",
            id="of another engine",
        ),
        pytest.param(
            [SessionBuilder("traffic-v2", namespace="other").model("detector")],
            "",
            "VersionMissing",
            "does not exist",
            id="of another namespace",
        ),
    ],
)
def test_a_version_that_cannot_answer(
    others: list[SessionBuilder], want_url: str, want_reason: str, want_message: str
) -> None:
    made = settled(CANARY, *others)
    (route,) = routes(made)
    assert (route.url, route.problem) == (want_url, want_message)
    assert ready(made) == ("False", want_reason)
    assert f"Session traffic-v2 of version 2 {want_message}. " in message(made)
    (status,) = made.session("traffic").status.versions
    assert (status.ready, status.share, status.message) == (False, "0%", f"Session traffic-v2 {want_message}.")
    assert made.condition("traffic", "Ready")[0] == "True", "the session itself serves"


def test_a_version_that_is_being_deleted() -> None:
    made = settled(CANARY, SECOND)
    made.engine.removals_needed = 5
    made.delete("default/traffic-v2")
    made.run(1)
    assert (routes(made)[0].url, ready(made)) == ("", ("False", "VersionMissing"))


def test_another_share_makes_no_plan() -> None:
    made = settled(PLAIN, SECOND)
    plans, searches = dict(made.plans), len(made.problems)
    for share in ("10%", "50%", "0%"):
        made.add(with_versions({"name": "2", "session": "traffic-v2", "share": share}).build())
        made.run(1)
        assert [route.share for route in routes(made)] == [float(share[:-1]) / 100]
    assert (made.plans.keys(), len(made.problems)) == (plans.keys(), searches)


def test_versions_do_not_wait_for_the_plan_that_comes_with_them() -> None:
    made = settled(PLAIN, SECOND)
    before = made.engine.applied["default/traffic"].plan.metadata.name
    made.add(with_versions(*({"name": "2", "session": "traffic-v2"},), builder=MANUAL).build())
    made.run(15)
    assert made.engine.applied["default/traffic"].plan.metadata.name == before
    assert [route.name for route in routes(made)] == ["2"]


MANUAL = PLAIN.planner(approval=Approval.MANUAL).rate(400)


def test_versions_that_were_removed() -> None:
    made = settled(CANARY, SECOND)
    made.add(PLAIN.build())
    made.run(2)
    assert (routes(made), ready(made)) == ((), ("True", "NoVersions"))
    assert (made.session("traffic").status.versions, made.session("traffic").status.version_shares) == ((), None)


def test_sessions_without_versions_do_not_have_the_condition() -> None:
    made = settled(PLAIN, SECOND)
    assert (routes(made), [c for c in made.session("traffic").status.conditions if c.type == "VersionsReady"]) == (
        (),
        [],
    )
    assert "versions" not in made.session("traffic").spec.model_dump_json()


def test_frontends_wait_for_as_long_as_the_version_works_on_a_request() -> None:
    held = SECOND.with_spec(autoscaling=Autoscaling(scale_to_zero=ScaleToZero(after_seconds=60, hold_seconds=30)))
    assert [routes(settled(CANARY, other))[0].answer_seconds for other in (SECOND, held)] == [5.8, 35.8]


def test_a_session_is_no_version_of_itself() -> None:
    itself = with_versions({"name": "2", "session": "traffic"})
    made = settled(itself)
    assert made.condition("traffic", "Ready") == ("False", "InvalidSpec")
    verdict = judge_session(itself.build(), "", made.cluster(), OperatorSettings())
    assert verdict.refusal == (
        "InvalidSpec: spec.versions names the session itself as version 2. Name another session."
    )


def test_a_session_that_serves_sends_nothing_to_itself() -> None:
    """An edit that makes the spec invalid keeps the plan that serves, and counts for versions at once."""
    made = settled(PLAIN)
    made.add(with_versions({"name": "2", "session": "traffic", "share": "100%"}).build())
    made.run(3)
    (route,) = routes(made)
    assert (route.url, route.problem) == ("", "is this session itself")


@pytest.mark.parametrize(
    ("score", "share", "reason"),
    [
        pytest.param(1.0, "10%", "VersionsReady", id="passed"),
        pytest.param(0.5, "0%", "VersionUnchecked", id="failed with other samples"),
    ],
)
def test_a_version_gets_its_share_only_while_its_answers_are_as_expected(score: float, share: str, reason: str) -> None:
    quality = {"samples": {"configMap": "samples"}, "metric": "Top1", "limit": "0.9"}
    made = SimulatedCluster(samples="some", score=lambda _: 1.0)
    made.add(pool("fast").build(), CANARY.build())
    made.add(SECOND.with_spec(quality=Quality.model_validate(quality)).build())
    made.run(15)
    assert made.session("traffic").status.versions[0].share == "10%"

    made.samples, made.score = "others", lambda _: score
    made.run(15)

    assert made.session("traffic").status.versions[0].share == share
    assert ready(made)[1] == reason
    assert made.condition("traffic-v2", "Ready") == ("True", "Serving")


WATCHED = {"name": "2", "session": "traffic-v2", "share": "10%", "withdrawIfSloMissed": True}
MISSED, MET = Signals(offered_rate="10", bad_rate="0.5"), Signals(offered_rate="10", bad_rate="0")


def measured(made: SimulatedCluster, signals: Signals) -> None:
    """What the frontends of the version report in the next passes."""
    plan = made.engine.applied["default/traffic-v2"].plan.metadata.name
    made.engine.reported["default/traffic-v2"] = ServingSignals(signals, plan, ())
    made.run(2)


def test_a_version_that_misses_its_slo_loses_its_share_until_the_spec_changes() -> None:
    made = settled(with_versions(WATCHED), SECOND)
    assert ready(made) == ("True", "VersionsReady")
    measured(made, MISSED)
    (route,) = routes(made)
    assert (route.problem, route.url != "") == ("has missed its SLO", True)
    assert (ready(made), made.session("traffic").status.version_shares) == (("False", "VersionWithdrawn"), "2=0%")
    assert [event.reason for key, event in made.events if key == "default/traffic"].count("VersionWithdrawn") == 1

    measured(made, MET)
    assert ready(made) == ("False", "VersionWithdrawn"), "without requests it meets its SLO"
    made.restart()
    made.run(3)
    assert ready(made) == ("False", "VersionWithdrawn"), "also for another operator"

    made.add(with_versions({**WATCHED, "share": "5%"}).build())
    made.run(2)
    assert (ready(made), routes(made)[0].problem) == (("True", "VersionsReady"), "")


def test_a_withdrawn_version_that_is_not_ready_for_a_while_stays_withdrawn() -> None:
    made = settled(with_versions(WATCHED), SECOND)
    measured(made, MISSED)
    measured(made, MET)
    version = made.sessions["default/traffic-v2"]
    made.sessions["default/traffic-v2"] = version.model_copy(update={"status": type(version.status)()})
    made.look_at_sessions()
    made.run(15)
    assert ready(made) == ("False", "VersionWithdrawn")


def test_by_default_a_version_keeps_its_share() -> None:
    made = settled(CANARY, SECOND)
    measured(made, MISSED)
    assert (ready(made), routes(made)[0].problem) == (("True", "VersionsReady"), "")


def test_a_shadow_version_gets_copies() -> None:
    shadow = {"share": "50%", "absoluteTolerance": "0.01", "relativeTolerance": "10m"}
    made = settled(with_versions({"name": "3", "session": "traffic-v2", "shadow": shadow}), SECOND)
    (route,) = routes(made)
    assert (route.share, route.shadow) == (0.0, ShadowRoute(share=0.5, absolute=0.01, relative=0.01))
    assert message(made) == "copies of 50% go to version 3."
    status = made.session("traffic").status
    assert ([v.copies for v in status.versions], status.version_shares) == (["50%"], "3=50%-copied")


def test_a_shadow_version_that_is_not_ready_gets_no_copies() -> None:
    made = settled(with_versions({"name": "3", "session": "traffic-v2", "shadow": {}}), FAILING)
    assert (routes(made)[0].problem, made.session("traffic").status.version_shares) == ("is not ready", "3=0%-copied")


def test_sessions_may_name_each_other() -> None:
    """Requests are sent on once: `tests/security/clients/test_versions.py`."""
    back = with_versions({"name": "2", "session": "traffic", "share": "100%"}, builder=SECOND)
    made = settled(with_versions({"name": "2", "session": "traffic-v2", "share": "100%"}), back)
    assert [made.condition(name, "VersionsReady")[0] for name in ("traffic", "traffic-v2")] == ["True", "True"]


PROMOTED = {
    "name": "2",
    "session": "traffic-v2",
    "share": "100%",
    "promotion": {"stepsPercent": [5, 25], "minutes": 10},
}


def promoted() -> SimulatedCluster:
    """A version that answers requests in time, at its first step."""
    made = settled(with_versions(PROMOTED), SECOND)
    measured(made, MET)
    return made


def test_a_version_is_promoted_step_by_step_while_it_meets_its_slo() -> None:
    made = promoted()
    (route,) = routes(made)
    assert route.share == 0.05
    assert message(made).startswith("5% of the requests go to version 2 (25% from 2026-01-01T00:1")
    for share in (0.05, 0.25, 1.0, 1.0):
        assert routes(made)[0].share == share
        made.run(605, every=5)
    assert message(made) == "100% of the requests go to version 2."
    said = [event.message for key, event in made.events if event.reason == "VersionPromoted"]
    assert said == [
        "Version 2 gets 25% of the requests, after 5%.",
        "Version 2 gets 100% of the requests, after 25%.",
    ]
    assert made.made_plans == [name for name in made.made_plans if "traffic" in name][:2], "no plan for a step"


def test_a_version_without_requests_stays_at_its_step() -> None:
    made = settled(with_versions(PROMOTED), SECOND)
    made.run(3000, every=5)
    assert routes(made)[0].share == 0.05
    measured(made, MET)
    assert routes(made)[0].share == 0.05
    made.run(605, every=5)
    assert routes(made)[0].share == 0.25


def test_a_promoted_version_that_misses_its_slo_begins_again_after_a_change() -> None:
    made = promoted()
    made.run(605, every=5)
    assert routes(made)[0].share == 0.25
    measured(made, MISSED)
    assert made.session("traffic").status.version_shares == "2=0%"
    measured(made, MET)
    made.run(3000, every=5)
    assert ready(made) == ("False", "VersionWithdrawn")

    made.add(with_versions({**PROMOTED, "promotion": {"stepsPercent": [1, 25], "minutes": 10}}).build())
    made.run(2)
    assert (ready(made)[0], routes(made)[0].share) == ("True", 0.01)


def test_a_version_that_is_not_ready_for_a_while_begins_its_step_again() -> None:
    made = promoted()
    made.run(900, every=5)
    assert routes(made)[0].share == 0.25
    version = made.sessions["default/traffic-v2"]
    made.sessions["default/traffic-v2"] = version.model_copy(update={"status": type(version.status)()})
    made.look_at_sessions()
    assert made.session("traffic").status.version_shares == "2=0%"
    made.run(400, every=5)
    assert routes(made)[0].share == 0.25, "ten minutes from its return"
    made.restart()
    made.run(300, every=5)
    assert routes(made)[0].share == 1.0


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        pytest.param([5, 25, 50], 0.25, id="another step later"),
        pytest.param([5, 20, 40], 0.2, id="other steps"),
        pytest.param([30], 0.3, id="only larger ones"),
    ],
)
def test_other_steps_go_on_where_it_was(steps: list[int], want: float) -> None:
    made = promoted()
    made.run(605, every=5)
    made.add(with_versions({**PROMOTED, "promotion": {"stepsPercent": steps, "minutes": 10}}).build())
    made.run(2)
    assert routes(made)[0].share == want
