"""Quotas: the most accelerators of a pool that the sessions of one namespace hold."""

from typing import Any

import pytest
from pydantic import ValidationError
from tests.builders import SessionBuilder, pool
from tests.operator.doubles import signals, with_stages
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_api.gpupool import GPUPool, GPUPoolSpec, Quota
from partita_api.inferencesession import InferenceSession, Objective, ObjectiveType


def fast(gpus: int, **quotas: int) -> GPUPool:
    made = tuple(Quota(namespace=namespace, gpus=most) for namespace, most in quotas.items())
    return pool("fast").gpus(gpus).with_spec(quotas=made).build()


def one(name: str, rate: int, namespace: str = "team", **spec: Any) -> InferenceSession:
    built = SessionBuilder(name, namespace=namespace).model("detector").rate(rate).with_spec(**spec).build()
    return built.model_copy(update={"metadata": built.metadata.model_copy(update={"uid": f"{namespace}-{name}"})})


def cluster(on: GPUPool, *sessions: InferenceSession) -> SimulatedCluster:
    made = SimulatedCluster()
    made.add(on)
    for built in sessions:
        made.add(built)
        made.run(15)
    return made


def ready(made: SimulatedCluster, key: str) -> tuple[str, str, str]:
    found = next(c for c in made.sessions[key].status.conditions if c.type == "Ready")
    return str(found.status), found.reason, found.message


def test_a_refusal_names_the_quota_and_the_sessions_that_use_it() -> None:
    made = cluster(fast(10, team=4), one("first", 300), one("second", 200))
    status, reason, message = ready(made, "team/second")
    assert (status, reason) == ("False", "QuotaExceeded")
    assert "The quota of namespace team is 4 accelerators of pool fast, which leaves 1 for this session" in message
    assert "team/first holds 3, and 7 are free." in message
    assert "Raise the quota in spec.quotas of GPUPool fast" in message


def test_a_namespace_without_a_quota_may_use_all() -> None:
    made = cluster(fast(10, team=4), one("first", 300), one("other", 700, namespace="elsewhere"))
    assert ready(made, "elsewhere/other")[:2] == ("True", "Serving")


def test_a_full_pool_is_not_a_quota_problem() -> None:
    made = cluster(fast(4, team=4), one("other", 300, namespace="elsewhere"), one("first", 200))
    assert ready(made, "team/first")[1] == "InsufficientCapacity"


def test_a_raised_quota_lets_the_session_be_planned() -> None:
    made = cluster(fast(10, team=4), one("first", 300), one("second", 200))
    made.add(fast(10, team=5))
    made.run(15)
    assert ready(made, "team/second")[:2] == ("True", "Serving")
    assert [(q.namespace, q.gpus, q.allocated) for q in made.pools["fast"].status.quotas] == [("team", 5, 5)]


def test_a_lowered_quota_keeps_the_current_plan_and_reports_it() -> None:
    made = cluster(fast(10, team=5), one("first", 300))
    made.add(fast(10, team=2))
    made.run(15)
    status, reason, message = ready(made, "team/first")
    assert (status, reason) == ("False", "QuotaExceeded")
    assert "keeps serving" in message
    assert "team/first" in made.engine.applied


def test_replicas_grow_within_the_quota_only() -> None:
    made = cluster(fast(10, team=4), one("first", 200))
    made.run(40)
    plan = made.engine.applied["team/first"].plan.metadata.name
    bad = {("detector", "p0", 0): (2, 0.0, 0.8)}
    made.engine.reported["team/first"] = with_stages(signals(plan, 100, 0.8, 0.0), bad)
    made.run(3)
    assert [t.replicas for t in made.engine.applied["team/first"].targets] == [4]


def test_sessions_that_maximise_throughput_share_their_quota() -> None:
    greedy = {"objective": Objective(type=ObjectiveType.THROUGHPUT)}
    made = cluster(fast(16, team=4), one("first", 100, **greedy))
    made.add(one("second", 100, **greedy))
    made.run(60)
    held = {key: s.plan.spec.gpus() for key, s in made.engine.applied.items()}
    assert held == {"team/first": {"fast": 2}, "team/second": {"fast": 2}}


def test_a_quota_of_0_excludes_a_namespace() -> None:
    made = cluster(fast(10, team=0), one("first", 100))
    assert ready(made, "team/first")[1] == "QuotaExceeded"


@pytest.mark.parametrize(
    ("quotas", "want"),
    [
        pytest.param(
            [{"namespace": "a", "gpus": 1}, {"namespace": "a", "gpus": 2}], "keep one entry for it", id="twice"
        ),
        pytest.param([{"namespace": "a", "gpus": -1}], "greater than or equal to 0", id="negative"),
        pytest.param([{"namespace": "A b", "gpus": 1}], "pattern", id="not a namespace name"),
    ],
)
def test_wrong_quotas_are_refused(quotas: list[dict[str, Any]], want: str) -> None:
    with pytest.raises(ValidationError, match=want):
        GPUPoolSpec.model_validate({"quotas": quotas})
