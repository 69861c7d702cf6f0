"""The rules of Kubernetes for versions, generations, finalizers, owners and preconditions."""

from datetime import timedelta

import pytest
from tests.devtools.api_server.objects import CONFIG_MAP, EVENT, FAST, NOW, PLAN, POOL, Cluster
from tests.devtools.demo.demo_results import demo_result

from partita_devtools.api_server.errors import RefusedError
from partita_devtools.api_server.store import EVENTS_KEPT, Change, ObjectStore
from partita_operator.kube.resources import document


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_new_object_has_an_identity_and_no_status(cluster: Cluster) -> None:
    body = {"metadata": {"name": "fast", "uid": ""}, "spec": {"count": 2}, "status": {"capacity": 9}}
    found = cluster.store.create(POOL, "", body, cluster.now)

    assert (found["apiVersion"], found["kind"], found["spec"]) == ("partita.dev/v1alpha1", "GPUPool", {"count": 2})
    assert "status" not in found
    assert found["metadata"]["generation"] == 1
    assert found["metadata"]["uid"]
    assert cluster.disk.files[FAST] == found


def test_only_changes_of_the_spec_are_a_new_generation(cluster: Cluster) -> None:
    cluster.pool()
    labelled = cluster.store.patch(POOL, FAST, {"metadata": {"labels": {"a": "b"}}}, cluster.now, status=False)
    observed = cluster.store.patch(POOL, FAST, {"status": {"capacity": 2}}, cluster.now, status=True)
    grown = cluster.store.patch(POOL, FAST, {"spec": {"count": 3}}, cluster.now, status=False)

    assert [o["metadata"]["generation"] for o in (labelled, observed, grown)] == [1, 1, 2]
    versions = [int(o["metadata"]["resourceVersion"]) for o in (labelled, observed, grown)]
    assert versions == sorted(set(versions))


def test_a_write_that_changes_nothing_is_no_new_version(cluster: Cluster) -> None:
    before = cluster.pool()
    assert cluster.store.patch(POOL, FAST, {"spec": {"count": 2}}, cluster.now, status=False) is before


def test_spec_and_status_are_written_separately(cluster: Cluster) -> None:
    cluster.pool()
    cluster.store.patch(POOL, FAST, {"spec": {"count": 7}, "status": {"capacity": 2}}, cluster.now, status=True)
    after = cluster.store.patch(POOL, FAST, {"spec": {"count": 3}, "status": None}, cluster.now, status=False)

    assert (after["spec"], after["status"]) == ({"count": 3}, {"capacity": 2})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("uid", "of-an-earlier-object", id="another object of the same name"),
        pytest.param("resourceVersion", "1", id="another version"),
    ],
)
def test_preconditions_are_checked(cluster: Cluster, field: str, value: str) -> None:
    before = cluster.pool()
    for status in (True, False):
        with pytest.raises(RefusedError) as refused:
            cluster.store.patch(POOL, FAST, {"metadata": {field: value}}, cluster.now, status=status)
        assert refused.value.status == 409
        desired = {"metadata": {"name": "fast", field: value}, "status": {"capacity": 2}}
        with pytest.raises(RefusedError):
            cluster.store.apply(POOL, FAST, desired, "partita", cluster.now, status=status, force=True)
    assert cluster.store.get(FAST) is before


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"count": -1}, "spec.count", id="value out of range"),
        pytest.param({"cuont": 1}, "spec.cuont", id="unknown field"),
    ],
)
def test_an_invalid_object_is_refused_and_changes_nothing(cluster: Cluster, spec: dict[str, int], want: str) -> None:
    before = cluster.pool()
    with pytest.raises(RefusedError, match=want) as refused:
        cluster.store.patch(POOL, FAST, {"spec": spec}, cluster.now, status=False)
    assert refused.value.status == 422
    assert cluster.store.get(FAST) is before


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", None, 5])
def test_a_name_that_is_no_name_is_refused(cluster: Cluster, name: object) -> None:
    with pytest.raises(RefusedError, match="is not a name"):
        cluster.store.create(POOL, "", {"metadata": {"name": name}, "spec": {}}, cluster.now)


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"labels": "tier=gold"}, id="labels as text"),
        pytest.param({"annotations": {"a": 5}}, id="annotation that is no text"),
        pytest.param({"finalizers": "a.b/c"}, id="finalizer as text"),
        pytest.param({"ownerReferences": ["me"]}, id="owner as text"),
    ],
)
def test_wrong_metadata_is_refused(cluster: Cluster, metadata: dict[str, object]) -> None:
    with pytest.raises(RefusedError, match=rf"metadata.{next(iter(metadata))} must be"):
        cluster.store.create(CONFIG_MAP, "default", {"metadata": {"name": "a", **metadata}}, cluster.now)


def test_an_object_with_finalizers_stays_until_they_are_removed(cluster: Cluster) -> None:
    cluster.pool()
    cluster.store.patch(POOL, FAST, {"metadata": {"finalizers": ["a.b/c"]}}, cluster.now, status=False)
    marked = cluster.store.delete(POOL, FAST, cluster.now)
    again = cluster.store.delete(POOL, FAST, cluster.now)
    assert marked["metadata"]["deletionTimestamp"] == again["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["generation"] == 2

    cluster.store.patch(POOL, FAST, {"metadata": {"finalizers": None}}, cluster.now, status=False)
    with pytest.raises(RefusedError, match="not found"):
        cluster.store.get(FAST)
    assert cluster.disk.files == {}


def test_what_an_object_owns_is_deleted_with_it(cluster: Cluster) -> None:
    owner = cluster.config_map("owner")
    cluster.config_map("owned", owner)
    cluster.config_map("deeper", cluster.config_map("owned-2", owner))
    cluster.config_map("other")

    cluster.store.delete(CONFIG_MAP, ("v1", "configmaps", "default", "owner"), cluster.now)

    assert [o["metadata"]["name"] for o in cluster.store.list(CONFIG_MAP, "")] == ["other"]


def test_a_change_that_cannot_be_saved_is_refused_and_not_visible(cluster: Cluster) -> None:
    before = cluster.pool()
    heard: list[Change] = []
    cluster.store.listen(heard.append)
    cluster.disk.full = True
    for write in (
        lambda: cluster.store.patch(POOL, FAST, {"spec": {"count": 3}}, cluster.now, status=False),
        lambda: cluster.store.delete(POOL, FAST, cluster.now),
        lambda: cluster.pool("second"),
    ):
        with pytest.raises(RefusedError, match=r"No space left on device.*make room on the disk"):
            write()
    assert [o["metadata"]["name"] for o in cluster.store.list(POOL, "")] == ["fast"]
    assert cluster.store.get(FAST) is before
    assert heard == []


def test_changes_are_heard_and_can_be_asked_for_later(cluster: Cluster) -> None:
    heard: list[Change] = []
    stop = cluster.store.listen(heard.append)
    since = int(cluster.pool()["metadata"]["resourceVersion"])
    cluster.store.patch(POOL, FAST, {"spec": {"count": 3}}, cluster.now, status=False)
    stop()
    cluster.store.delete(POOL, FAST, cluster.now)

    assert [change.type for change in heard] == ["ADDED", "MODIFIED"]
    assert [change.type for change in cluster.store.changes_since(since)] == ["MODIFIED", "DELETED"]
    assert cluster.store.changes_since(cluster.store.version) == []


def test_changes_before_the_start_are_gone(cluster: Cluster) -> None:
    cluster.pool()
    version = cluster.store.version
    restarted = ObjectStore(cluster.disk.files.items(), cluster.disk, NOW + timedelta(hours=1))
    assert restarted.get(FAST) == cluster.store.get(FAST)
    assert restarted.version > version
    with pytest.raises(RefusedError, match="too old resource version") as refused:
        restarted.changes_since(version)
    assert refused.value.status == 410


def test_a_rule_for_updates_holds(cluster: Cluster) -> None:
    body = {"metadata": {"name": "plan-1"}, "spec": document(demo_result().plan.spec)}
    place = (PLAN.api_version, PLAN.plural, "default", "plan-1")
    cluster.store.create(PLAN, "default", body, cluster.now)
    cluster.store.patch(PLAN, place, {"spec": {"approved": True}}, cluster.now, status=False)
    with pytest.raises(RefusedError, match=r"only spec.approved of a PipelinePlan may change"):
        cluster.store.patch(PLAN, place, {"spec": {"throughput": "1"}}, cluster.now, status=False)


def test_events_are_kept_for_an_hour(cluster: Cluster) -> None:
    cluster.store.create(EVENT, "default", {"metadata": {"name": "old"}}, NOW)
    cluster.store.create(EVENT, "default", {"metadata": {"name": "new"}}, NOW + timedelta(seconds=2))
    cluster.store.forget_old_events(NOW + EVENTS_KEPT + timedelta(seconds=1))
    assert [o["metadata"]["name"] for o in cluster.store.list(EVENT, "")] == ["new"]
