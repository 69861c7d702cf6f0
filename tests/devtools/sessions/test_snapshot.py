"""What counts as serving, as stuck, and as news."""

import pytest
from tests.devtools.demo.demo_results import condition, demo_result

from partita_api.conditions import Condition
from partita_devtools.sessions.snapshot import SessionSnapshot, changes

UP = (condition("Ready", "True"), condition("RolledOut", "True"))


def observation(
    *conditions: Condition, observed: int = 1, url: str | None = "http://h/default/traffic", plan: bool = True
) -> SessionSnapshot:
    made_up = demo_result()
    active = {"name": made_up.plan.metadata.name, "costPerHour": "1", "throughput": "1"} if plan else None
    status = made_up.session.status.model_validate(
        {"observedGeneration": observed, "url": url, "conditions": conditions, "currentPlan": active}
    )
    session = made_up.session.model_copy(update={"status": status})
    return SessionSnapshot(session, made_up.pools, (made_up.plan,))


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(observation(*UP), True, id="all there"),
        pytest.param(observation(), False, id="nothing said yet"),
        pytest.param(observation(*UP, observed=0), False, id="said of an earlier spec"),
        pytest.param(observation(UP[0], condition("RolledOut", "False")), False, id="old plan still serves"),
        pytest.param(observation(*UP, url=None), False, id="no address"),
        pytest.param(observation(*UP, plan=False), False, id="no plan in force"),
    ],
)
def test_session_serves(found: SessionSnapshot, want: bool) -> None:
    assert found.serves == want


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(
            observation(condition("Stalled", "True", message="Make the SLO 300 ms.")),
            "Make the SLO 300 ms.",
            id="stalled",
        ),
        pytest.param(observation(condition("Stalled", "False")), None, id="under way"),
        pytest.param(observation(condition("Stalled", "True"), observed=0), None, id="stalled with an earlier spec"),
    ],
)
def test_obstacle_is_what_a_person_must_change(found: SessionSnapshot, want: str | None) -> None:
    assert found.obstacle == want


def test_only_news_is_reported_in_the_order_in_which_things_come_about() -> None:
    first = observation(condition("Ready", "False"), condition("Profiled", "False"), condition("Stalled", "False"))
    second = observation(condition("Ready", "False"), condition("Profiled", "True"), condition("Planned", "True"))

    news = changes({}, first.conditions(), 1.0)
    more = changes(first.conditions(), second.conditions(), 2.0)

    assert [(c.type, c.status) for c in news if c.object == "InferenceSession traffic"] == [
        ("Profiled", "False"),
        ("Ready", "False"),
    ]
    assert [(c.at_s, c.type, c.status) for c in more] == [(2.0, "Profiled", "True"), (2.0, "Planned", "True")]
    assert changes(second.conditions(), second.conditions(), 3.0) == ()


def test_new_message_of_the_same_status_is_news() -> None:
    before = observation(condition("Profiled", "False", message="1 of 6")).conditions()
    after = observation(condition("Profiled", "False", message="2 of 6")).conditions()

    assert [c.message for c in changes(before, after, 1.0)] == ["2 of 6"]
