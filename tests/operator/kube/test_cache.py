"""The cache of Partita's objects: the order of versions, and objects that cannot be read."""

from copy import deepcopy

import pytest
from kubernetes.aio.client import Configuration
from tests.builders import session
from tests.crds.documents import PLAN, POOL, SESSION, Json, changed

from partita_api.digests import canonical_json
from partita_api.meta import SESSION_SPEC_ANNOTATION
from partita_operator.kube.cache import ClusterCache, Kind
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import Connection


@pytest.fixture
def cache() -> ClusterCache:
    """A cache without lists: its client is never used."""
    return ClusterCache(KubernetesClient(Connection(Configuration(host="http://127.0.0.1:1"))))


def stored(document: Json, version: int = 1, uid: str = "1", namespace: str | None = "default") -> Json:
    made = deepcopy(document)
    made["metadata"] |= {"resourceVersion": str(version), "uid": uid, "generation": 1}
    if namespace is not None:
        made["metadata"]["namespace"] = namespace
    return made


def test_objects_are_read_as_models(cache: ClusterCache) -> None:
    cache.put(Kind.SESSION, stored(SESSION))
    cache.put(Kind.POOL, stored(POOL, namespace=None))
    cache.put(Kind.PLAN, stored(PLAN))
    cluster = cache.cluster()
    assert set(cluster.sessions) == {"default/traffic"}
    assert cluster.pools["fast"].spec.price_per_hour == "0.71"
    assert set(cluster.plans_of(cluster.sessions["default/traffic"])) == {"traffic-0123abcd"}
    assert cluster.unreadable == {}


@pytest.mark.parametrize(
    ("version", "uid", "want_ms"),
    [
        pytest.param(6, "1", 300, id="newer"),
        pytest.param(4, "1", 200, id="older: a late event"),
        pytest.param(10, "1", 300, id="newer, with more digits"),
        pytest.param(4, "2", 300, id="another object of the same name"),
    ],
)
def test_only_newer_versions_replace_cached_ones(cache: ClusterCache, version: int, uid: str, want_ms: int) -> None:
    cache.put(Kind.SESSION, stored(SESSION, version=5))
    cache.put(Kind.SESSION, stored(changed(SESSION, "spec.slo.latencyMs", 300), version=version, uid=uid))
    assert cache.cluster().sessions["default/traffic"].spec.slo.latency_ms == want_ms


def test_a_forgotten_object_is_gone(cache: ClusterCache) -> None:
    cache.put(Kind.SESSION, stored(SESSION))
    cache.forget((Kind.SESSION, "default/traffic"))
    assert cache.cluster().sessions == {}


BROKEN = changed(SESSION, "spec.modules.0.model.file", "model.pt2")


def test_a_session_that_cannot_be_read_has_the_spec_of_its_current_plan(cache: ClusterCache) -> None:
    before = session("traffic").model("detector").slo(150).build()
    plan = changed(stored(PLAN), "metadata.annotations", {SESSION_SPEC_ANNOTATION: canonical_json(before.spec)})
    active = {"name": "traffic-0123abcd", "costPerHour": "1", "throughput": "80"}
    cache.put(Kind.PLAN, plan)
    cache.put(Kind.SESSION, changed(stored(BROKEN), "status", {"currentPlan": active}))
    cluster = cache.cluster()
    assert cluster.sessions["default/traffic"].spec == before.spec
    assert cluster.sessions["default/traffic"].status.current_plan is not None
    assert (
        "modules.0.model: a model needs exactly one of entrypoint, file and huggingFace"
        in cluster.unreadable["default/traffic"]
    )


def test_a_session_that_was_never_readable_has_only_its_name(cache: ClusterCache) -> None:
    cache.put(Kind.SESSION, changed(stored(BROKEN), "status", {"currentPlan": {"name": "of an older version"}}))
    cluster = cache.cluster()
    assert cluster.sessions["default/traffic"].metadata.uid == "1"
    assert set(cluster.unreadable) == {"default/traffic"}


def test_a_status_of_another_version_is_not_an_error_of_the_spec(cache: ClusterCache) -> None:
    cache.put(Kind.SESSION, changed(stored(SESSION), "status", {"currentPlan": {"name": "of an older version"}}))
    cluster = cache.cluster()
    assert cluster.sessions["default/traffic"].status.current_plan is None
    assert cluster.unreadable == {}


def test_a_pool_that_cannot_be_read_keeps_its_status(cache: ClusterCache) -> None:
    broken = changed(stored(POOL, namespace=None), "spec.sharing.mode", "Whole")
    cache.put(Kind.POOL, changed(broken, "status", {"capacity": 8}))
    cluster = cache.cluster()
    assert cluster.pools["fast"].status.capacity == 8
    assert "sharing.maxDivisor above 1 needs sharing.mode MPS" in cluster.unreadable["fast"]


def test_a_plan_that_cannot_be_read_is_left_out(cache: ClusterCache) -> None:
    cache.put(Kind.PLAN, changed(stored(PLAN), "spec.modules", []))
    assert cache.cluster().plans == {}
