"""A model whose file has changed is planned again, and no plan gets replicas with the content of another one."""

import pytest
from tests.builders import pool, session
from tests.operator.doubles import made_profile
from tests.operator.reconcile.session.test_holds import annotate
from tests.operator.reconcile.simulated import SimulatedCluster

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
