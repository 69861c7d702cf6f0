"""How many pods the groups of a running Ray cluster get: needed ones, and further ones in place of those that end."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pytest
from tests.builders import pool
from tests.operator.engines.serve_model import stage_config

from partita_api.fields.quantity import Quantity
from partita_api.gpupool import GPUPool, GPUPoolStatus
from partita_api.pool.unschedulable import UnschedulableStatus
from partita_operator.engines.kuberay.pod_numbers import grows, pods_elsewhere, replacements, scaling
from partita_operator.engines.kuberay.rayservice_manifest import rayservice
from partita_operator.engines.kuberay.worker_groups import FRONTENDS, NUMBERS, WorkerGroup, frontend_group, pool_group
from partita_operator.kube.rayservices import GROUP_LABEL
from partita_operator.settings.kuberay import KubeRaySettings

Json = dict[str, Any]
GHOST = pool("a").with_spec(ray_resource="a").build()
SETTINGS = KubeRaySettings(image="registry/serving:1")
ENDED = "2026-11-25T09:00:00Z"


@dataclass(frozen=True)
class PodsBuilder:
    """The pods of a Ray cluster."""

    made: tuple[Json, ...] = ()

    def on(self, node: str | None, count: int = 1, *, group: str = "p0-gpu", ends: bool = False) -> Self:
        """So many more pods on a node; None: they wait for one."""
        labels, spec = {GROUP_LABEL: group}, {"nodeName": node} if node is not None else {}
        meta = {"labels": labels} | ({"deletionTimestamp": ENDED} if ends else {})
        named = [{**meta, "name": f"{group}-{len(self.made) + n}"} for n in range(count)]
        return replace(self, made=(*self.made, *({"metadata": each, "spec": spec} for each in named)))


@dataclass(frozen=True)
class PoolState:
    """The pool p0 with its status."""

    capacity: int
    allocated: int
    closed: UnschedulableStatus = field(default_factory=UnschedulableStatus)

    def departing(self, *nodes: str) -> Self:
        """Nodes with one accelerator each, which are not in capacity."""
        return self._closed(departing=len(nodes), departing_nodes=nodes)

    def cordoned(self, *nodes: str, in_use: int) -> Self:
        """Nodes with one accelerator each, of which so many are in capacity."""
        return self._closed(cordoned=len(nodes), cordoned_nodes=nodes, cordoned_in_use=in_use)

    def _closed(self, **fields: Any) -> Self:
        return replace(self, closed=self.closed.model_copy(update=fields))

    def build(self) -> GPUPool:
        status = GPUPoolStatus(
            capacity=self.capacity,
            allocated=Quantity(self.allocated),
            free=Quantity(max(0, self.capacity - self.allocated)),
            unschedulable=self.closed if self.closed.nodes else None,
        )
        return pool("p0").build().model_copy(update={"status": status})


def live(*replicas: int) -> Json:
    """A running Ray cluster."""
    return {"metadata": {"resourceVersion": "7"}, "spec": {"workerGroupSpecs": groups(*replicas)}}


def numbers(operations: Sequence[Json]) -> Json:
    """What the operations set, by group and field."""
    return {o["path"].removeprefix("/spec/workerGroupSpecs/"): o["value"] for o in operations[1:]}


def groups(*pods: int) -> list[WorkerGroup]:
    made = [pool_group(pool(f"p{n}").build(), SETTINGS, 8) for n in range(len(pods))]
    return [
        {**group, "replicas": count, "minReplicas": count, "maxReplicas": count}
        for group, count in zip(made, pods, strict=True)
    ]


@pytest.mark.parametrize(
    ("live", "configured", "want"),
    [
        pytest.param([2, 1], [2, 1], {}, id="as desired"),
        pytest.param([0], [2], {"0/replicas": 2, "0/minReplicas": 2, "0/maxReplicas": 2}, id="more at once"),
        pytest.param([3], [1], {"0/minReplicas": 1}, id="the autoscaler removes pods"),
        pytest.param([1, 1], [1], {"1/minReplicas": 0}, id="a group that is not needed"),
    ],
)
def test_a_running_cluster_gets_pods_at_once_and_loses_only_idle_ones(
    live: list[int], configured: list[int], want: Json
) -> None:
    cluster = {"metadata": {"resourceVersion": "7"}, "spec": {"workerGroupSpecs": groups(*live)}}

    found = scaling(cluster, groups(*configured))

    assert {o["path"].removeprefix("/spec/workerGroupSpecs/"): o["value"] for o in found[1:]} == want
    assert bool(found) == bool(want)
    if found:
        assert found[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}


def test_the_bound_falls_after_the_autoscaler_has_removed_a_pod() -> None:
    (group,) = groups(3)
    cluster = {
        "metadata": {"resourceVersion": "7"},
        "spec": {"workerGroupSpecs": [{**group, "replicas": 1, "minReplicas": 1}]},
    }

    assert [o["path"] for o in scaling(cluster, groups(1))[1:]] == ["/spec/workerGroupSpecs/0/maxReplicas"]


@pytest.mark.parametrize(
    ("pods", "free", "want"),
    [
        pytest.param(PodsBuilder().on("a", 2), 4, 0, id="none ends"),
        pytest.param(PodsBuilder().on("a").on("b", ends=True), 4, 1, id="one ends"),
        pytest.param(PodsBuilder().on("b", 2, ends=True), 1, 1, id="fewer accelerators are free"),
        pytest.param(PodsBuilder().on("a").on("b", ends=True), 0, 0, id="no accelerator is free"),
        pytest.param(PodsBuilder().on("a", 2).on("b", ends=True), 4, 0, id="the other pod is there"),
        pytest.param(PodsBuilder().on("a", 2).on("b", 2, ends=True), 4, 0, id="idle ones that the autoscaler removes"),
    ],
)
def test_a_pod_that_ends_is_replaced_before_it_is_gone(pods: PodsBuilder, free: int, want: int) -> None:
    pods = pods.on("a", group="other", ends=True)

    found = scaling(live(2), groups(2), pods.made, [PoolState(8, 8 - free).build()])

    assert numbers(found) == ({"0/replicas": 2 + want, "0/maxReplicas": 2 + want} if want else {})


def test_a_change_of_plan_does_not_take_the_accelerator_of_a_pod_that_ends() -> None:
    """A pool of three: the present plan has two pods, and the autoscaler removes the one of the plan before.

    The next plan needs a third pod. KubeRay would make a fourth one when the pod that ends is gone.
    """
    pods = PodsBuilder().on("a").on("b").on("c", ends=True)

    found = scaling(live(2), groups(3), pods.made, [PoolState(3, 2).build()])

    assert numbers(found) == {"0/replicas": 3, "0/minReplicas": 3, "0/maxReplicas": 3}


def test_pods_of_frontends_need_no_accelerator_to_be_replaced() -> None:
    frontends = {**frontend_group(SETTINGS), "replicas": 1}

    assert replacements(PodsBuilder().on("a", group=FRONTENDS, ends=True).made, [frontends], ()) == {FRONTENDS: 1}


THREE = PodsBuilder().on("a").on("b").on("c")


@pytest.mark.parametrize(
    ("pods", "state", "want"),
    [
        pytest.param(THREE, PoolState(8, 3), 0, id="no notice"),
        pytest.param(THREE, PoolState(7, 3).departing("c"), 1, id="free accelerators"),
        pytest.param(THREE, PoolState(5, 3).departing("b", "c", "idle"), 2, id="two of three"),
        pytest.param(THREE, PoolState(2, 3).departing("c"), 0, id="no free accelerator"),
        pytest.param(THREE, PoolState(2, 3).departing("b", "c"), 1, id="a free accelerator for one of two"),
        pytest.param(THREE, PoolState(3, 3).departing("c"), 1, id="the plan fits without the node"),
        pytest.param(THREE.on("d"), PoolState(7, 3).departing("c"), 0, id="the other pod runs"),
        pytest.param(THREE.on(None), PoolState(7, 3).departing("c"), 0, id="the other pod waits for its node"),
        pytest.param(
            PodsBuilder().on("a").on("b").on("c", ends=True), PoolState(7, 3).departing("c"), 1, id="it ends already"
        ),
        pytest.param(THREE, PoolState(3, 3).cordoned("c", in_use=0), 0, id="a cordoned node"),
        pytest.param(
            PodsBuilder().on("a").on("b").on("c", ends=True),
            PoolState(3, 3).cordoned("c", in_use=0),
            1,
            id="the drain of a cordoned node, with a free accelerator elsewhere",
        ),
        pytest.param(
            PodsBuilder().on("a").on("b").on("c", ends=True),
            PoolState(3, 3).cordoned("c", in_use=1),
            0,
            id="the drain of a cordoned node, without one",
        ),
    ],
)
def test_pods_on_departing_nodes_are_replaced_before_they_end(pods: PodsBuilder, state: PoolState, want: int) -> None:
    built = state.build()

    assert replacements(pods.made, groups(3), [built], built.status.departing_nodes) == (
        {"p0-gpu": want} if want else {}
    )


def test_the_accelerators_of_a_pool_that_the_session_does_not_use_are_not_known() -> None:
    assert replacements(THREE.made, groups(3), [], {"c"}) == {}


def test_further_nodes_depart_before_the_first_one_is_gone() -> None:
    built = PoolState(6, 3).departing("b", "c").build()

    def scaled(replicas: int, pods: PodsBuilder) -> int:
        found = numbers(scaling(live(replicas), groups(3), pods.made, [built], {"b", "c"}))
        return int(found.get("0/replicas", replicas))

    of_c = THREE.on("d")
    assert scaled(4, of_c) == 5
    assert scaled(5, of_c) == 5
    assert scaled(5, of_c.on(None)) == 5


def test_idle_pods_in_place_of_departing_ones_stay_until_these_are_gone() -> None:
    built = PoolState(7, 3).departing("c").build()

    def scaled(replicas: int, pods: PodsBuilder) -> Json:
        return numbers(scaling(live(replicas), groups(3), pods.made, [built], {"c"}))

    before = scaled(3, THREE)
    assert before == {"0/replicas": 4, "0/minReplicas": 4, "0/maxReplicas": 4}
    assert scaled(4, THREE.on("d")) == {}
    assert scaled(4, PodsBuilder().on("a").on("b").on("d")) == {"0/minReplicas": 3}


WAITING = PodsBuilder().on("a", 2).on(None, 3)


@pytest.mark.parametrize(
    ("pods", "needed", "want"),
    [
        pytest.param(WAITING, 5, 0, id="all are needed"),
        pytest.param(WAITING, 4, 1, id="one is not needed"),
        pytest.param(WAITING, 2, 3, id="none that waits is needed"),
        pytest.param(WAITING, 0, 3, id="those on nodes are removed by the autoscaler"),
        pytest.param(PodsBuilder().on("a", 5), 2, 0, id="none waits"),
        pytest.param(PodsBuilder().on(None, 2, ends=True).on("a", 3), 2, 0, id="they end already"),
        pytest.param(PodsBuilder().on("a").on("c").on(None), 2, 0, id="in place of a pod on a departing node"),
        pytest.param(PodsBuilder().on("a", 2).on(None), 2, 1, id="KubeRay's, in place of a replaced pod that is gone"),
    ],
)
def test_pods_that_wait_for_a_node_and_are_not_needed_are_removed(pods: PodsBuilder, needed: int, want: int) -> None:
    found = scaling(live(5), groups(needed), pods.made, [PoolState(8, 5).departing("c").build()], {"c"})

    names = [pod["metadata"]["name"] for pod in pods.made if not pod["spec"]][:want]
    changes = numbers(found)
    assert changes.get("0/scaleStrategy", {"workersToDelete": []}) == {"workersToDelete": names}
    if want:
        assert (changes["0/replicas"], changes["0/maxReplicas"]) == (len(pods.made) - want,) * 2
        assert changes["0/minReplicas"] == min(needed, len(pods.made) - want)
    else:
        assert "0/replicas" not in changes


def test_pods_that_the_autoscaler_has_removed_are_not_requested_again() -> None:
    pods = PodsBuilder().on("a", 2).on("b", 2, ends=True).on(None)

    assert numbers(scaling(live(3), groups(2), pods.made)) == {
        "0/scaleStrategy": {"workersToDelete": ["p0-gpu-4"]},
        "0/minReplicas": 2,
    }


def test_a_removal_is_requested_once() -> None:
    (group,) = groups(2)
    asked = {**group, "scaleStrategy": {"workersToDelete": ["p0-gpu-2", "p0-gpu-3", "p0-gpu-4"]}}
    cluster = {"metadata": {"resourceVersion": "8"}, "spec": {"workerGroupSpecs": [asked]}}

    assert scaling(cluster, groups(2), WAITING.made) == []
    assert scaling(cluster, groups(2), PodsBuilder().on("a", 2).made) == []


def of_cut_gpus(*slices: tuple[str, int]) -> list[WorkerGroup]:
    """The groups of one pool, whose GPUs were cut into other slices, and their pods."""
    kinds = [pool("a100").with_spec(resource_name=f"nvidia.com/mig-{kind}").build() for kind, _ in slices]
    made = [pool_group(kind, SETTINGS, 8) for kind in kinds]
    return [{**group, **dict.fromkeys(NUMBERS, count)} for group, (_, count) in zip(made, slices, strict=True)]


@pytest.mark.parametrize(
    ("idle", "want"),
    [
        pytest.param(2, {"0/minReplicas": 0, **{f"1/{field}": 1 for field in NUMBERS}}, id="one is free"),
        pytest.param(3, {"0/minReplicas": 0}, id="none is free"),
        pytest.param(0, {f"1/{field}": 3 for field in NUMBERS}, id="all are free"),
    ],
)
def test_pods_that_the_autoscaler_has_not_removed_yet_count_for_the_pool(idle: int, want: Json) -> None:
    live = of_cut_gpus(("1g.5gb", idle), ("3g.20gb", 0))
    cluster = {"metadata": {"resourceVersion": "7"}, "spec": {"workerGroupSpecs": live}}

    found = scaling(cluster, of_cut_gpus(("1g.5gb", 0), ("3g.20gb", 3)))

    assert {o["path"].removeprefix("/spec/workerGroupSpecs/"): o["value"] for o in found[1:]} == want


def test_pods_of_other_namespaces_count_for_the_pool() -> None:
    clusters = [
        {"metadata": {"namespace": namespace}, "spec": {"workerGroupSpecs": groups(*pods)}}
        for namespace, pods in (("vision", (4, 4)), ("speech", (1, 2)), ("text", (1,)))
    ]

    found = pods_elsewhere(clusters, "vision")

    assert found == {"partita-pool-p0": 2, "partita-pool-p1": 2}


def test_pods_of_other_namespaces_are_counted_only_if_a_group_grows() -> None:
    def pods(count: int) -> Json:
        return rayservice(
            "vision", [stage_config("plan-1", 0, count)], [pool_group(GHOST, SETTINGS, 8)], None, SETTINGS
        )

    assert grows(None, pods(1))
    assert grows(pods(1), pods(2))
    assert not grows(pods(2), pods(2))
    assert not grows(pods(2), pods(1))
