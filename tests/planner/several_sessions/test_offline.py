"""Planning from manifests and profiles, without a cluster."""

from tests.builders import pool, profile, session

from partita_planner.planning import plan
from partita_planner.problem import NoPlan, Planned
from partita_planner.several_sessions.offline import offline_problem, plan_offline

MANY = session("first").slo(15).rate(250).model("m")
PROFILES = [profile("m").linear(10_000, 0).batches(1).build()]


def test_sessions_share_what_is_left() -> None:
    pools = [pool("fast").gpus(4).build()]

    first, second = plan_offline(pools, [MANY.build(), MANY.build()], PROFILES, plan)

    assert isinstance(first[1], Planned)
    assert isinstance(second[1], NoPlan)
    assert second[1].gpus_missing == {"fast": 2}


def test_pools_are_those_that_the_session_names() -> None:
    pools = [pool("fast").build(), pool("other").build()]
    profiles = [*PROFILES, profile("m").on("other").build()]

    found = offline_problem(pools, MANY.with_spec(pools=("other",)).build(), profiles, {"fast": 1, "other": 2})

    assert [(p.name, p.gpus) for p in found.pools] == [("other", 2)]
    assert list(found.profiles) == [("m", "other")]


def test_profile_of_another_model_is_not_used() -> None:
    found = offline_problem([pool("fast").build()], MANY.build(), [profile("x").build()], {"fast": 1})

    assert found.profiles == {}
