"""From whatever state the operator dies in, or whatever is damaged by hand, the world converges to the same end."""

from collections.abc import Callable

import pytest
from tests.builders import pool, session
from tests.operator.reconcile.simulated import OperatorKilledError, SimulatedCluster

from partita_operator.ports import RunPhase

TWO_MODELS = session("traffic").chain("detector", "classifier").rate(150)


def two_pools() -> SimulatedCluster:
    cluster = SimulatedCluster()
    cluster.add(pool("fast").gpus(4).build(), pool("slow").gpus(8).build(), TWO_MODELS.build())
    return cluster


def first_roll_out(cluster: SimulatedCluster) -> None:
    cluster.run(20)


def with_a_failing_run(cluster: SimulatedCluster) -> None:
    cluster.runner.script["slow"] = (RunPhase.FAILED, RunPhase.SUCCEEDED)
    cluster.run(60)


def change_of_rate(cluster: SimulatedCluster) -> None:
    cluster.run(20)
    cluster.add(TWO_MODELS.rate(250).build())
    cluster.run(20)


def deletion(cluster: SimulatedCluster) -> None:
    cluster.run(20)
    cluster.delete("default/traffic")
    cluster.run(10)


def second_session(cluster: SimulatedCluster) -> None:
    cluster.run(20)
    cluster.add(session("other").model("detector").rate(200).build())
    cluster.run(20)


STORIES: list[Callable[[SimulatedCluster], None]] = [
    first_roll_out,
    with_a_failing_run,
    change_of_rate,
    deletion,
    second_session,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_death_before_any_write_changes_nothing_in_the_end(story: Callable[[SimulatedCluster], None]) -> None:
    undisturbed = two_pools()
    story(undisturbed)
    undisturbed.run(100)
    want = undisturbed.outcome()

    for writes in range(undisturbed.writes):
        cluster = two_pools()
        cluster.writes_before_death = writes
        try:
            story(cluster)
        except OperatorKilledError:
            # What the users did meanwhile is in the manifests; the story is told again from where it was.
            cluster.restart()
            _catch_up(cluster, undisturbed)
        cluster.run(100)

        assert cluster.outcome() == want, f"killed before write {writes}"
        assert sorted(set(cluster.runner.started)) == sorted(set(undisturbed.runner.started))
        assert len(cluster.runner.started) == len(set(cluster.runner.started)), "a run was started twice"
        assert len(cluster.made_plans) <= len(undisturbed.made_plans)


def _catch_up(cluster: SimulatedCluster, undisturbed: SimulatedCluster) -> None:
    """The manifests as they are at the end of the story."""
    cluster.run(20)
    for key in cluster.sessions:
        if key not in undisturbed.sessions:
            cluster.delete(key)
    cluster.add(*undisturbed.sessions.values())
