"""Planning from manifests and profiles, without a cluster."""

from tests.builders import pool, profile, session

from partita_api.gpupool import GPUPoolStatus
from partita_api.pool.elastic import ElasticStatus
from partita_planner.planning import plan
from partita_planner.problem import NoPlan, Outcome, Planned, PlanningProblem, Pool
from partita_planner.several_sessions.offline import offline_problem, plan_offline

MANY = session("first").slo(15).rate(250).model("m")
PROFILES = [profile("m").linear(10_000, 0).batches(1).build()]


def test_sessions_share_what_is_left() -> None:
    pools = [pool("fast").gpus(4).build()]

    first, second = plan_offline(pools, [MANY.build(), MANY.build()], PROFILES, plan)

    assert isinstance(first[1], Planned)
    assert isinstance(second[1], NoPlan)
    assert second[1].gpus_missing == {"fast": 2}


def test_plans_without_a_cluster_use_what_an_elastic_pool_may_get() -> None:
    growing = pool("fast").elastic(3).build()
    there = growing.model_copy(update={"status": GPUPoolStatus(capacity=3, elastic=ElasticStatus(present=2))})
    asked: list[Pool] = []

    def recorded(problem: PlanningProblem) -> Outcome:
        asked.extend(problem.pools)
        return plan(problem)

    sessions = [session(name).slo(50).rate(100).model("m").build() for name in ("one", "two")]
    outcomes = [o for _, o in plan_offline([there], sessions, [profile("m").linear(1000, 0).build()], recorded)]
    assert all(isinstance(outcome, Planned) for outcome in outcomes)
    assert [(pool.gpus, pool.absent) for pool in asked] == [(3, 1), (2, 1)]


def test_pools_are_those_that_the_session_names() -> None:
    pools = [pool("fast").build(), pool("other").build()]
    profiles = [*PROFILES, profile("m").on("other").build()]

    found = offline_problem(pools, MANY.with_spec(pools=("other",)).build(), profiles, {"fast": 1, "other": 2})

    assert [(p.name, p.gpus) for p in found.pools] == [("other", 2)]
    assert list(found.profiles) == [("m", "other")]


def test_profile_of_another_model_is_not_used() -> None:
    found = offline_problem([pool("fast").build()], MANY.build(), [profile("x").build()], {"fast": 1})

    assert found.profiles == {}


def test_size_classes_have_the_profiles_of_modules_of_their_sizes() -> None:
    sized = session("sized").sized("m", {16: None, 32: None}).build()
    small = PROFILES[0].request.input.model_copy(update={"shape": (3, 32, 16)})
    profiled = PROFILES[0].model_copy(update={"request": PROFILES[0].request.model_copy(update={"input": small})})

    found = offline_problem([pool("fast").build()], sized, [*PROFILES, profiled], {"fast": 1})

    assert {pair: each.request.input.shape[-1] for pair, each in found.profiles.items()} == {
        ("m-s16", "fast"): 16,
        ("m-s32", "fast"): 32,
    }
