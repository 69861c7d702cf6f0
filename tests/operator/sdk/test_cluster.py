"""Sessions of the SDK on a real API server, with the operator's own loop: planned, applied, awaited and deleted."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from tests.operator.handlers.conftest import Operators, cluster, namespace, operators
from tests.operator.kubectl import Kubectl, eventually, pool, reason
from tests.patience import PATIENCE_SECONDS

import partita
from partita_api.fields.label_selector import LabelSelector

pytestmark = pytest.mark.apiserver

__all__ = ["cluster", "namespace", "operators"]
T = TypeVar("T")
CLASSIFIER = {"entrypoint": "tests.models:classifier", "input": partita.Tensor([3, 32, 32])}


def shop(**spec: Any) -> partita.Session:
    return partita.Session("shop", slo_ms=200, requests_per_second=50, **spec).add_model("classifier", **CLASSIFIER)


@pytest.fixture
def there(namespace: Kubectl) -> partita.Cluster:
    """The cluster and the test's namespace as the SDK sees them."""
    return partita.Cluster(kubeconfig=namespace.kubeconfig, namespace=namespace.namespace)


async def blocking(call: Callable[[], T]) -> T:
    """The operator runs on this event loop, which the SDK must not stop."""
    return await asyncio.to_thread(call)


async def test_a_session_from_its_first_line_to_its_end(
    there: partita.Cluster, namespace: Kubectl, operators: Operators
) -> None:
    namespace.apply(pool("fast", count=16))
    session, said = shop(), list[str]()

    async with operators.running():
        applied = await blocking(lambda: session.apply(there))
        assert (applied.namespace, applied.metadata.generation) == (namespace.namespace, 1)
        found = await blocking(lambda: session.wait(PATIENCE_SECONDS, there, progress=said.append))
        assert found.status.current_plan is not None
        assert reason(namespace.get("isess", "shop")) == ("True", "Serving")
        assert len(said) == len({line.partition("s  ")[2] for line in said}) > 0, "each line once"
        assert (await blocking(lambda: session.status(there))).url == f"http://engine/{namespace.namespace}/shop"

        session.configure(rate={"requestsPerSecond": 2000})
        await blocking(lambda: session.apply(there))
        grown = await blocking(lambda: session.wait(PATIENCE_SECONDS, there, progress=None))
        assert grown.metadata.generation == grown.status.observed_generation == 2
        assert grown.status.current_plan != found.status.current_plan

        await blocking(lambda: session.delete(there, timeout=PATIENCE_SECONDS))
        assert namespace.get("isess", "shop") is None
        await blocking(lambda: session.delete(there, timeout=PATIENCE_SECONDS))


async def test_the_plan_is_the_one_that_the_operator_makes(
    there: partita.Cluster, namespace: Kubectl, operators: Operators
) -> None:
    namespace.apply(pool("fast", count=16), pool("dear", count=16, pricePerHour="3"))
    session = shop()

    async with operators.running():
        for name in ("fast", "dear"):
            await eventually(lambda name=name: namespace.get("gpool", name), lambda found: reason(found)[0] == "True")
        with pytest.raises(partita.ClusterError, match="no profile of classifier"):
            await blocking(lambda: there.plan(session))
        await blocking(lambda: session.apply(there))
        await blocking(lambda: session.wait(PATIENCE_SECONDS, there, progress=None))
        plan = await blocking(lambda: there.plan(session))
        dearer = await blocking(lambda: there.plan(session, requests_per_second=9000))

    (stored,) = namespace.list("pplan")
    assert stored["spec"]["cost"]["allocatedPerHour"] == str(plan.spec.cost.allocated_per_hour)
    assert dearer.cost_per_hour > plan.cost_per_hour
    assert {made.metadata.name for made in there.pools()} >= {"fast", "dear"}
    assert {measured.request.pool for measured in there.profiles()} == {"fast", "dear"}


async def test_a_session_that_nobody_can_serve_is_not_waited_for(there: partita.Cluster, operators: Operators) -> None:
    selector = LabelSelector(match_labels={"nobody": "has-this"})
    session = shop(pool_selector=selector)

    async with operators.running():
        await blocking(lambda: session.apply(there))
        with pytest.raises(partita.NotReadyError, match="labels nobody=has-this"):
            await blocking(lambda: session.wait(PATIENCE_SECONDS, there, progress=None))
        await blocking(lambda: session.delete(there, timeout=PATIENCE_SECONDS))


def test_without_an_operator_the_wait_ends_and_says_so(there: partita.Cluster) -> None:
    session = shop()
    session.apply(there)

    with pytest.raises(TimeoutError, match="has not processed the session yet"):
        session.wait(0, there)
    with pytest.raises(partita.ClusterError, match="has no URL yet"):
        session.client(there)
    session.delete(there)


async def test_calls_work_where_an_event_loop_runs(namespace: Kubectl) -> None:
    """As in a notebook."""
    there = partita.Cluster(kubeconfig=namespace.kubeconfig, namespace=namespace.namespace)
    session = shop()

    assert session.apply(there).metadata.generation == 1
    session.delete(there)
    assert namespace.get("isess", "shop") is None


def test_the_current_cluster_of_kubectl_is_the_default(namespace: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    session = shop(namespace=namespace.namespace)

    session.apply()
    assert namespace.get("isess", "shop") is not None
    session.delete()
    assert namespace.get("isess", "shop") is None


def test_the_session_s_own_namespace_counts(namespace: Kubectl) -> None:
    session = shop(namespace=namespace.namespace)
    elsewhere = partita.Cluster(kubeconfig=namespace.kubeconfig, namespace="kube-system")

    session.apply(elsewhere)
    assert elsewhere.get(session).namespace == namespace.namespace
    assert namespace.get("isess", "shop") is not None
    session.delete(elsewhere)


def test_fields_of_others_are_kept_unless_they_are_taken_by_force(there: partita.Cluster, namespace: Kubectl) -> None:
    namespace("apply", "--server-side", "-f", "-", stdin=shop().manifest())
    session = shop().copy(slo_ms=90)

    with pytest.raises(partita.ClusterError, match=r"without force.*\.spec\.slo\.latencyMs"):
        session.apply(there)
    assert there.get(session).spec.slo.latency_ms == 200

    session.apply(there, force=True)
    assert there.get(session).spec.slo.latency_ms == 90


def test_a_field_that_is_no_longer_set_gets_its_default(there: partita.Cluster, namespace: Kubectl) -> None:
    session = shop(priority=7)
    session.apply(there)
    session.configure(priority=None).apply(there)

    assert there.get(session).spec.priority == 0
    stored = namespace.get("isess", "shop")
    assert stored is not None
    assert yaml.safe_load(partita.Session.from_yaml(yaml.safe_dump(stored)).manifest())["metadata"]["name"] == "shop"


def test_nothing_is_applied_that_is_wrong(there: partita.Cluster, namespace: Kubectl) -> None:
    with pytest.raises(partita.InvalidSessionError):
        shop().add_model("Classifier", **CLASSIFIER).apply(there)
    assert namespace.list("isess") == []


def test_what_the_cluster_lacks_is_named(there: partita.Cluster, namespace: Kubectl, tmp_path: Path) -> None:
    with pytest.raises(partita.ClusterError, match=f"no InferenceSession shop in namespace {there.namespace}"):
        shop().wait(0, there)
    with pytest.raises(partita.ClusterError, match="has no namespace nowhere"):
        shop(namespace="nowhere").apply(there)
    with pytest.raises(partita.ClusterError, match="does not exist; give another kubeconfig"):
        partita.Cluster(kubeconfig=tmp_path / "missing")
    with pytest.raises(partita.ClusterError, match="give another kubeconfig"):
        partita.Cluster(kubeconfig=namespace.kubeconfig, context="missing")
