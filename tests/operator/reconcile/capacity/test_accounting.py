"""The accelerators that sessions hold, and how many a session may use."""

import pytest
from tests.builders import SessionBuilder, pool, session
from tests.operator.reconcile.simulated import SimulatedCluster
from tests.runtime.autoscaling.load_model import plan_of

from partita_api.inferencesession import Objective, ObjectiveType
from partita_api.pipelineplan import whole_accelerators
from partita_operator.reconcile.capacity.accounting import available, entitlements, holding, users
from partita_operator.reconcile.capacity.ledger import accelerators
from partita_planner.allocation.deployments import ModuleDeployments, TemplateDeployment
from partita_planner.templates.templates import Template, TemplateStage

SHARED = {"pools": ("fast",)}


def one(name: str, rate: int) -> SessionBuilder:
    return session(name).model("detector").rate(rate).with_spec(**SHARED)


def greedy(name: str, weight: int) -> SessionBuilder:
    return one(name, 100).with_spec(objective=Objective(type=ObjectiveType.THROUGHPUT, weight=weight))


def cluster(gpus: int, *sessions: SessionBuilder) -> SimulatedCluster:
    made = SimulatedCluster()
    made.add(pool("fast").gpus(gpus).build())
    for builder in sessions:
        made.add(builder.build())
        made.run(15)
    return made


def free(made: SimulatedCluster, name: str) -> int:
    return available(made.session(name), made.cluster())["fast"]


def test_accelerators_of_others_are_not_available() -> None:
    made = cluster(10, one("older", 300), one("younger", 400))
    assert holding(made.session("older"), made.cluster()) == {"fast": 3}
    assert (free(made, "older"), free(made, "younger")) == (6, 7)
    assert users("fast", made.cluster()) == {"default/older": 3.0, "default/younger": 4.0}


@pytest.mark.parametrize(
    ("gpus", "want_older", "want_younger"),
    [
        pytest.param(8, 4, 4, id="exactly enough"),
        pytest.param(6, 4, 2, id="shrunk: the younger session gives way"),
        pytest.param(3, 3, 0, id="shrunk below the accelerators of the older session"),
        pytest.param(0, None, None, id="nothing left"),
    ],
)
def test_if_a_pool_has_shrunk_the_younger_session_gives_way(
    gpus: int, want_older: int | None, want_younger: int | None
) -> None:
    made = cluster(8, one("older", 400), one("younger", 400))
    made.add(pool("fast").gpus(gpus).build())
    made.look_at_pool("fast")
    got = [available(made.session(name), made.cluster()).get("fast") for name in ("older", "younger")]
    assert got == [want_older, want_younger]


@pytest.mark.parametrize(
    ("gpus", "weights", "want"),
    [
        pytest.param(8, (1,), [8], id="alone"),
        pytest.param(8, (1, 1), [4, 4], id="even"),
        pytest.param(9, (1, 2), [3, 6], id="by weight"),
        pytest.param(7, (1, 1), [3, 4], id="to the whole GPU"),
        pytest.param(2, (1, 1, 1), [0, 1, 1], id="fewer GPUs than sessions"),
    ],
)
def test_throughput_sessions_share_a_pool_by_weight(gpus: int, weights: tuple[int, ...], want: list[int]) -> None:
    names = [f"s{i}" for i in range(len(weights))]
    made = SimulatedCluster()
    made.add(pool("fast").gpus(gpus).build())
    made.add(*(greedy(name, weight).build() for name, weight in zip(names, weights, strict=True)))
    made.run(2)
    assert [entitlements(made.session(name), made.cluster())["fast"] for name in names] == want
    assert sum(want) == gpus


def test_a_throughput_session_releases_accelerators_for_a_second_one() -> None:
    made = cluster(8, greedy("first", 1))
    assert users("fast", made.cluster()) == {"default/first": 8.0}
    made.add(greedy("second", 1).build())
    made.run(60)
    assert users("fast", made.cluster()) == {"default/first": 4.0, "default/second": 4.0}
    assert made.condition("second", "Ready") == ("True", "Serving")


def test_a_plan_keeps_its_planned_accelerators() -> None:
    made = cluster(10, one("older", 400))
    (plan,) = made.plans.values()
    for desired, want in ((2, 4.0), (4, 4.0), (6, 6.0)):
        stages = tuple(stage.model_copy(update={"desired": desired}) for stage in plan.status.stages)
        scaled = plan.model_copy(update={"status": plan.status.model_copy(update={"stages": stages})})
        assert accelerators(scaled) == {"fast": want}


@pytest.mark.parametrize(
    ("vgpus", "want"),
    [
        pytest.param([("fast", 1, 3)], {"fast": 3}, id="whole"),
        pytest.param([("fast", 2, 3)], {"fast": 2}, id="half a GPU stays unused"),
        pytest.param([("fast", 2, 1), ("fast", 4, 1)], {"fast": 2}, id="two sizes share no GPU"),
        pytest.param([("fast", 2, 1), ("fast", 2, 1)], {"fast": 1}, id="two stages of one size do"),
        pytest.param([("slow", 1, 1), ("fast", 8, 9)], {"fast": 2, "slow": 1}, id="by pool"),
        pytest.param([], {}, id="none"),
    ],
)
def test_planner_and_operator_count_whole_accelerators_in_the_same_way(
    vgpus: list[tuple[str, int, int]], want: dict[str, int]
) -> None:
    """Compares the planner's form of a plan, the plan's spec, and the operator's count."""
    shape = {f"p{i}": [(pool, divisor, count, 10_000)] for i, (pool, divisor, count) in enumerate(vgpus)}
    plan = plan_of({"m": shape})
    group = tuple(
        TemplateDeployment(Template(1, 0, (TemplateStage(0, 1, pool, divisor, 10_000, 0, 100.0),)), (count,))
        for pool, divisor, count in vgpus
    )

    assert whole_accelerators(vgpus) == want
    assert ModuleDeployments({"m": group}).gpus() == want
    assert plan.spec.gpus() == want
    assert accelerators(plan) == want


def test_sessions_of_one_name_in_two_namespaces_are_distinct() -> None:
    here = one("traffic", 300)
    there = SessionBuilder("traffic", namespace="elsewhere").model("detector").rate(200).with_spec(**SHARED)
    made = SimulatedCluster()
    made.add(pool("fast").gpus(8).build(), here.build())
    built = there.build()
    made.add(built.model_copy(update={"metadata": built.metadata.model_copy(update={"uid": "uid-elsewhere"})}))
    made.run(20)
    assert users("fast", made.cluster()) == {"default/traffic": 3.0, "elsewhere/traffic": 2.0}
    made.delete("elsewhere/traffic")
    made.run(10)
    assert set(made.engine.applied) == {"default/traffic"}
    assert users("fast", made.cluster()) == {"default/traffic": 3.0}
