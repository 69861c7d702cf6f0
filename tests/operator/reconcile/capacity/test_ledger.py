"""The updated ledger equals a new one, and evaluates only changes."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import pool, session
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_api.inferencesession import InferenceSession, Objective, ObjectiveType
from partita_api.pipelineplan import PipelinePlan
from partita_operator.reconcile.capacity.ledger import Ledger

State = tuple[dict[str, InferenceSession], dict[str, PipelinePlan]]


def states_of_a_cluster() -> list[State]:
    """States of a cluster from five manifests to their roll-out, changes and deletion."""
    cluster = SimulatedCluster()
    cluster.add(pool("fast").gpus(12).build(), pool("slow").gpus(6).build())
    for i in range(4):
        cluster.add(session(f"s{i}").model("detector").rate(100 * i + 50).with_spec(priority=i % 2).build())
    greedy = Objective(type=ObjectiveType.THROUGHPUT)
    cluster.add(session("greedy").model("detector").rate(10).with_spec(objective=greedy, pools=("slow",)).build())
    states: list[State] = []

    def advance(rounds: int) -> None:
        for _ in range(rounds):
            cluster.run(1)
            seen = cluster.cluster()
            states.append((dict(seen.sessions), dict(seen.plans)))

    advance(8)
    cluster.add(session("s1").model("detector").rate(350).build())
    cluster.delete("default/s3")
    advance(8)
    return states


STATES = states_of_a_cluster()


@settings(max_examples=60)
@given(st.lists(st.sampled_from(range(len(STATES))), min_size=1, max_size=8))
def test_an_updated_ledger_equals_a_new_one(order: list[int]) -> None:
    kept = Ledger()
    for index in order:
        kept = kept.after(*STATES[index])
    fresh = Ledger().after(*STATES[order[-1]])
    assert kept.accounts == fresh.accounts
    assert kept.owned == fresh.owned
    assert kept.greedy == fresh.greedy
    assert {name: kept.on(name) for name in ("fast", "slow")} == {name: fresh.on(name) for name in ("fast", "slow")}


def test_the_states_are_varied_enough() -> None:
    ledger = Ledger().after(*STATES[-1])
    assert {a.key for a in ledger.on("fast")} > {"default/s0"}
    assert [a.key for a in ledger.greedy] == ["default/greedy"]


def test_unchanged_sessions_are_not_evaluated() -> None:
    sessions, plans = STATES[-1]
    before = Ledger().after(sessions, plans)
    changed = sessions["default/s1"]
    other = changed.model_copy(update={"status": changed.status.model_copy(update={"url": "http://elsewhere"})})
    after = before.after({**sessions, "default/s1": other}, plans)
    assert all(after.accounts[key] is before.accounts[key] for key in sessions)
    assert after.on("fast") is before.on("fast")
    assert all(after.owned[owner] is before.owned[owner] for owner in after.owned)
