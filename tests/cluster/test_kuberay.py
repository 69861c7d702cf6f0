"""Sessions through the real KubeRay on real nodes: roll-out, changes under load, versions, scaling, removal."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.cluster.kuberay_sessions import COUNT, INPUTS, Watch, kuberay_users, plan, session
from tests.cluster.steady_load import ended_load, start_load
from tests.cluster.test_path_on_nodes import IMAGE, KUBECONFIG, PATIENCE_SECONDS
from tests.operator.kubectl import Json, Kubectl, condition, eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not KUBECONFIG.exists(), reason=f"no cluster with nodes ({KUBECONFIG}): make cluster"),
]


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with kuberay_users(tmp_path_factory.mktemp("kuberay")) as users:
        yield users


def containers_with_token(users: Kubectl) -> set[str]:
    """The containers of Ray's pods that have a token of Kubernetes."""
    pods = users.list("pods", "-l", "ray.io/is-ray-node=yes")
    containers = [(pod["metadata"]["name"], item["name"]) for pod in pods for item in pod["spec"]["containers"]]
    assert "ray-head" in {container for _, container in containers}
    look = ("--", "test", "-e", "/var/run/secrets/kubernetes.io/serviceaccount/token")
    return {name for pod, name in containers if users.run("exec", pod, "-c", name, *look).returncode == 0}


def has_its_versions(session: Json | None) -> bool:
    """Whether the session's requests go to its versions as its present spec has it."""
    found = condition(session, "VersionsReady")
    return (
        session is not None
        and found.get("status") == "True"
        and found["observedGeneration"] == session["metadata"]["generation"]
    )


async def test_sessions_are_served_changed_under_load_scaled_and_deleted(users: Kubectl) -> None:
    watch = Watch(users)
    users.apply(session("first", 5))
    first = await watch.until_serving("first", pods=1 + 1)

    start_load(users, IMAGE, first, INPUTS)
    users.apply(session("first", 25))
    second = await watch.until_serving("first", pods=1 + 2, not_with=plan(first))
    users.apply(session("first", 20, largest_batch=2))
    third = await watch.until_serving("first", pods=1 + 2, not_with=plan(second))
    answers = await ended_load(users)
    assert [*answers] == ["200"], "no request is lost"
    assert containers_with_token(users) == {"autoscaler"}

    users.apply(session("second", 5))
    await watch.until_serving("second", pods=1 + COUNT)
    users.apply(session("first", 20, largest_batch=2, versions=[{"name": "2", "session": "second", "share": "50%"}]))
    shared = await eventually(lambda: users.get("isess", "first"), has_its_versions, PATIENCE_SECONDS)
    assert plan(shared) == plan(third)
    start_load(users, IMAGE, shared, INPUTS)
    await asyncio.sleep(10)
    answers = await ended_load(users)
    assert answers.keys() == {"200", "200 2"}

    users.apply(session("first", 5))
    await watch.until_serving("first", pods=1 + 2, not_with=plan(third))
    assert watch.most_workers == COUNT, "what two plans need together is more"

    users("delete", "isess", "--all", "--timeout=300s")
    for kind in ("rayservices", "rayclusters", "pods", "services"):
        await eventually(lambda kind=kind: users("get", kind, "-o", "name"), lambda left: left == "", PATIENCE_SECONDS)
