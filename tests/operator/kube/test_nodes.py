"""What Partita reads from Kubernetes nodes: whether they take new pods, and whether they are about to go."""

from dataclasses import dataclass
from typing import Any, Self, cast

import pytest

from partita_api.fields.label_selector import LabelSelector
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.nodes import selected_nodes
from partita_operator.reconcile.world import Node

Json = dict[str, Any]


@dataclass(frozen=True)
class NodeBuilder:
    """A node as the API server returns it."""

    meta: Json
    spec: Json

    def tainted(self, key: str, effect: str = "NoSchedule") -> Self:
        taints = [*self.spec.get("taints", ()), {"key": key, "effect": effect}]
        return type(self)(self.meta, {**self.spec, "taints": taints})

    def cordoned(self) -> Self:
        """As `kubectl cordon` and the node controller do it."""
        made = self.tainted("node.kubernetes.io/unschedulable")
        return type(self)(made.meta, {**made.spec, "unschedulable": True})

    def deleted(self) -> Self:
        return type(self)({**self.meta, "deletionTimestamp": "2026-11-25T09:00:00Z"}, self.spec)

    def build(self) -> Json:
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": "4"}}
        return {"metadata": self.meta, "spec": self.spec, "status": ready}


def node(name: str = "a") -> NodeBuilder:
    return NodeBuilder({"name": name}, {})


@dataclass(frozen=True)
class Listed:
    """The part of the Kubernetes client that lists nodes."""

    found: tuple[Json, ...]

    async def list(self, *_: object, **__: object) -> tuple[Json, ...]:
        return self.found


async def read(*built: NodeBuilder) -> tuple[Node, ...]:
    listed = Listed(tuple(each.build() for each in built))
    return await selected_nodes(cast(KubernetesClient, listed), LabelSelector(match_labels={"gpu": "l4"}))


@pytest.mark.parametrize(
    ("built", "want"),
    [
        pytest.param(node().tainted("karpenter.sh/disrupted"), "taint karpenter.sh/disrupted", id="Karpenter"),
        pytest.param(
            node().tainted("karpenter.sh/disruption"), "taint karpenter.sh/disruption", id="Karpenter before 1.0"
        ),
        pytest.param(
            node().tainted("ToBeDeletedByClusterAutoscaler"),
            "taint ToBeDeletedByClusterAutoscaler",
            id="Cluster Autoscaler",
        ),
        pytest.param(
            node().tainted("aws-node-termination-handler/spot-itn"),
            "taint aws-node-termination-handler/spot-itn",
            id="spot reclaim on AWS",
        ),
        pytest.param(
            node().tainted("cloud.google.com/impending-node-termination"),
            "taint cloud.google.com/impending-node-termination",
            id="termination on Google Cloud",
        ),
        pytest.param(node().deleted(), "a deletion timestamp", id="deleted"),
        pytest.param(
            node().tainted("nvidia.com/gpu").cordoned().tainted("karpenter.sh/disrupted"),
            "taint karpenter.sh/disrupted",
            id="one of several taints",
        ),
    ],
)
async def test_a_notice_of_departure_is_named(built: NodeBuilder, want: str) -> None:
    (found,) = await read(built)

    assert (found.departure, found.unschedulable) == (want, True)


@pytest.mark.parametrize(
    ("built", "want"),
    [
        pytest.param(node(), False, id="an ordinary node"),
        pytest.param(node().tainted("nvidia.com/gpu"), False, id="a taint of its accelerators"),
        pytest.param(
            node().tainted("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule"), False, id="only a candidate"
        ),
        pytest.param(node().tainted("karpenter.sh/disrupted-by-us"), False, id="a similar taint"),
        pytest.param(node().cordoned(), True, id="cordoned"),
    ],
)
async def test_other_nodes_stay(built: NodeBuilder, want: bool) -> None:
    (found,) = await read(built)

    assert (found.departure, found.cordoned, found.unschedulable) == ("", want, want)


async def test_nodes_are_in_the_order_of_their_names_with_their_accelerators() -> None:
    found = await read(node("b"), node("a").cordoned())

    assert [(each.name, each.ready, each.allocatable) for each in found] == [
        ("a", True, {"nvidia.com/gpu": 4}),
        ("b", True, {"nvidia.com/gpu": 4}),
    ]
