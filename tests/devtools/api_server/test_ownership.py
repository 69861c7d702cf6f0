"""Server-side apply and merge patches."""

from typing import Any

import pytest
from tests.devtools.api_server.objects import FAST, Cluster

from partita_devtools.api_server.errors import RefusedError
from partita_devtools.api_server.ownership import merge_patch


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_an_application_creates_and_then_changes_the_object(cluster: Cluster) -> None:
    first = cluster.apply_pool("me", spec={"count": 2})
    second = cluster.apply_pool("me", spec={"count": 3})
    assert (first["metadata"]["uid"], second["spec"]) == (second["metadata"]["uid"], {"count": 3})


def test_a_field_that_its_manager_leaves_out_is_removed(cluster: Cluster) -> None:
    cluster.apply_pool("me", labels={"a": "1", "b": "2"}, spec={"count": 2, "pricePerHour": "1"})
    after = cluster.apply_pool("me", labels={"b": "2"}, spec={"count": 2})
    assert (after["spec"], after["metadata"]["labels"]) == ({"count": 2}, {"b": "2"})


def test_fields_of_others_stay(cluster: Cluster) -> None:
    cluster.apply_pool("me", spec={"count": 2})
    cluster.apply_pool("other", spec={"pricePerHour": "1", "count": 2})
    cluster.observe_pool("other", {"capacity": 2})
    after = cluster.apply_pool("other", spec={})
    assert (after["spec"], after["status"]) == ({"count": 2}, {"capacity": 2})


def test_a_status_is_replaced_as_a_whole(cluster: Cluster) -> None:
    cluster.apply_pool("me", spec={"count": 2})
    cluster.observe_pool("partita", {"capacity": 2, "nodes": 1})
    after = cluster.observe_pool("partita", {"free": "1"})
    assert (after["status"], after["spec"]) == ({"free": "1"}, {"count": 2})


def test_a_conflict_is_refused_unless_forced(cluster: Cluster) -> None:
    cluster.apply_pool("me", spec={"count": 2})
    with pytest.raises(RefusedError, match=r"spec.count \(by me\)") as refused:
        cluster.apply_pool("other", spec={"count": 3})
    assert refused.value.status == 409
    assert cluster.store.get(FAST)["spec"] == {"count": 2}
    assert cluster.apply_pool("other", spec={"count": 3}, force=True)["spec"] == {"count": 3}


@pytest.mark.parametrize(
    ("target", "patch", "want"),
    [
        pytest.param({"a": 1}, {"b": 2}, {"a": 1, "b": 2}, id="new field"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}, id="null removes"),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="lists are replaced"),
        pytest.param({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}, id="a value becomes an object"),
        pytest.param({}, {"a": {"b": None}}, {"a": {}}, id="null of a missing field"),
    ],
)
def test_merge_patch(target: Any, patch: Any, want: Any) -> None:
    assert merge_patch(target, patch) == want
