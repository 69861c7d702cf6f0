"""A model whose file has changed is planned again, and no plan gets replicas with the content of another one."""

from contextlib import suppress

import pytest
from tests.builders import pool, session
from tests.operator.doubles import made_profile
from tests.operator.reconcile.session.test_holds import annotate
from tests.operator.reconcile.simulated import OperatorKilledError, SimulatedCluster, started_runs

from partita_api.profile import Profile, ProfileRequest

OLD, NEW = "a" * 64, "b" * 64
DETECTOR = session("traffic").model("detector").rate(150)
KEY = "default/traffic"


def of_content(content: str | None) -> SimulatedCluster:
    """A cluster whose profiling runs find this content."""
    made = SimulatedCluster()
    changes_to(made, content)
    made.add(pool("fast").gpus(8).build(), DETECTOR.build())
    made.run(15)
    return made


def changes_to(made: SimulatedCluster, content: str | None) -> None:
    def make(request: ProfileRequest) -> Profile:
        return made_profile(request).model_copy(update={"content": content})

    made.runner.make = make


def content_served(made: SimulatedCluster) -> str | None:
    spec = made.engine.applied[KEY]
    (profile,) = spec.profiles.values()
    assert [ref.content for ref in spec.plan.spec.profiles] == [profile.content]
    return profile.content


def plan_served(made: SimulatedCluster) -> str:
    return made.engine.applied[KEY].plan.metadata.name


@pytest.mark.parametrize("before", [OLD, None], ids=["known", "unknown"])
def test_changed_content_is_another_plan(before: str | None) -> None:
    made = of_content(before)
    first = plan_served(made)
    assert content_served(made) == before

    changes_to(made, NEW)
    made.profiles.clear()
    made.run(30)

    assert content_served(made) == NEW
    assert plan_served(made) != first
    assert made.condition("traffic", "Ready") == ("True", "Serving")


@pytest.mark.parametrize("content", [OLD, None], ids=["known", "unknown"])
def test_the_same_content_is_the_same_plan(content: str | None) -> None:
    made = of_content(content)
    first = plan_served(made)
    made.profiles.clear()
    made.run(30)

    assert (plan_served(made), content_served(made)) == (first, content)
    assert len(made.made_plans) == 1


def test_a_plan_that_is_kept_gets_no_replicas_of_other_content() -> None:
    made = SimulatedCluster()
    changes_to(made, OLD)
    manual = DETECTOR.planner(approval="Manual")
    made.add(pool("fast").gpus(8).build(), manual.build())
    made.run(10)
    made.approve(*made.plans)
    made.run(10)
    before = made.engine.applied[KEY]

    changes_to(made, NEW)
    made.profiles.clear()
    made.engine.applied.clear()
    made.run(30)

    assert KEY not in made.engine.applied
    made.approve(*(name for name in made.plans if name != before.plan.metadata.name))
    made.run(10)
    assert content_served(made) == NEW


def test_an_earlier_plan_of_other_content_is_not_returned_to() -> None:
    made = of_content(OLD)
    first = plan_served(made)
    changes_to(made, NEW)
    made.profiles.clear()
    made.run(30)

    annotate(made, 30, rollback=f"{first}@1")

    assert content_served(made) == NEW
    status = made.session("traffic").status
    assert any("The model of detector has other content on pool fast" in c.message for c in status.conditions)


def loses(made: SimulatedCluster, *contents: str) -> None:
    made.engine.lost_contents = frozenset(contents)


def profiled(made: SimulatedCluster) -> int:
    return len(started_runs(made))


def changes_seen(made: SimulatedCluster) -> list[str]:
    return [event.message for _, event in made.events if event.reason == "ContentChanged"]


def test_content_that_a_replica_does_not_find_is_profiled_again_and_planned() -> None:
    made = of_content(OLD)
    first = plan_served(made)

    changes_to(made, NEW)
    loses(made, OLD)
    made.run(30)

    assert content_served(made) == NEW
    assert plan_served(made) != first
    assert made.condition("traffic", "Ready") == ("True", "Serving")
    assert changes_seen(made) == [
        f"The model of module detector has other content than when plan {first} was made. It is profiled again on "
        "pool fast."
    ]
    assert made.session("traffic").status.confirmed_contents == ()


def test_content_changes_as_often_as_somebody_changes_it() -> None:
    made = of_content(OLD)
    for present, lost in ((NEW, OLD), (OLD, NEW), (NEW, OLD)):
        changes_to(made, present)
        loses(made, lost)
        made.run(60)
        assert content_served(made) == present
    assert profiled(made) == 4


def test_content_that_only_some_nodes_lack_is_profiled_once_more() -> None:
    """Profiling finds the content of the plan again, and some replicas still do not."""
    made = of_content(OLD)
    first = plan_served(made)

    loses(made, OLD)
    made.run(200)

    assert (plan_served(made), profiled(made)) == (first, 2)
    assert made.session("traffic").status.confirmed_contents == (OLD,)


@pytest.mark.parametrize("writes", range(12))
def test_an_operator_killed_at_any_write_profiles_again_and_not_for_ever(writes: int) -> None:
    made = of_content(OLD)
    changes_to(made, NEW)
    loses(made, OLD)
    made.writes, made.writes_before_death = 0, writes
    with suppress(OperatorKilledError):
        made.run(30)
    made.restart()
    made.run(60)

    assert content_served(made) == NEW
    assert profiled(made) == 2


def test_size_classes_of_a_model_change_together() -> None:
    made = SimulatedCluster()
    changes_to(made, OLD)
    sized = session("traffic").sized("detector", {128: None, 224: None}).rate(50)
    made.add(pool("fast").gpus(8).build(), sized.build())
    made.run(15)
    before = profiled(made)

    changes_to(made, NEW)
    loses(made, OLD)
    made.run(60)

    assert {profile.content for profile in made.engine.applied[KEY].profiles.values()} == {NEW}
    assert len(made.made_plans) == 2
    assert profiled(made) == 2 * before


def test_a_paused_session_stays_as_it_is() -> None:
    made = of_content(OLD)
    annotate(made, 1, paused="for a moment")
    changes_to(made, NEW)
    loses(made, OLD)
    made.run(30)

    assert (content_served(made), profiled(made)) == (OLD, 1)
