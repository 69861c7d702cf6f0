"""What becomes of KubeRay's pods that waited for nodes of an elastic pool, when the nodes did not come."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.builders import pool
from tests.operator.reconcile.elastic_cluster import DETECTOR, elastic_cluster
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_operator.engines.kuberay.pod_numbers import scaling
from partita_operator.engines.kuberay.rayservice_manifest import rayservice, worker_groups
from partita_operator.engines.kuberay.worker_groups import WorkerGroup, pool_group
from partita_operator.engines.rollout import rollout_target
from partita_operator.kube.rayservices import GROUP_LABEL
from partita_operator.settings.kuberay import KubeRaySettings
from partita_runtime.serving.deploy.applications import ServingOptions

Json = dict[str, Any]
SETTINGS = KubeRaySettings(image="registry/serving:1")


def groups_of(made: SimulatedCluster, present: Json | None = None) -> tuple[Json, Sequence[WorkerGroup]]:
    """The RayService of what the engine was last asked for, and its worker groups."""
    spec = made.engine.applied["default/traffic"]
    apps = rollout_target(spec, ServingOptions()).deployments.values()
    pools = [pool_group(each, SETTINGS, each.status.capacity) for each in spec.pools.values()]
    manifest = rayservice("default", apps, pools, present, SETTINGS)
    return manifest, worker_groups(manifest)


def pod(number: int, node: str | None) -> Json:
    spec = {"nodeName": node} if node else {}
    return {"metadata": {"name": f"worker-{number}", "labels": {GROUP_LABEL: "fast-gpu"}}, "spec": spec}


@pytest.mark.parametrize(
    ("others", "want"),
    [
        pytest.param(0, {"fast-gpu": 2}, id="the current plan stays"),
        pytest.param(8, {"fast-gpu": 0, "slow-gpu": 5}, id="another pool has enough"),
    ],
)
def test_pods_whose_nodes_never_came_go_and_the_others_stay(others: int, want: dict[str, int]) -> None:
    made = elastic_cluster(2)
    made.add(pool("slow").gpus(others).build())
    made.run(5)
    made.add(DETECTOR.rate(500).build())
    made.engine.most_ready = 0  # of the new plan
    made.run(60)
    before, live = groups_of(made)
    assert {group["groupName"]: group["replicas"] for group in live}["fast-gpu"] == 5
    pods = [pod(0, "node-0"), pod(1, "node-1"), *(pod(number, None) for number in (2, 3, 4))]

    made.run(80)
    _, groups = groups_of(made, before)
    operations = scaling({"metadata": {"resourceVersion": "7"}, "spec": {"workerGroupSpecs": live}}, groups, pods)

    assert {group["groupName"]: group["replicas"] for group in groups if group["groupName"] != "frontends"} == want
    (removed,) = [o["value"] for o in operations if o["path"].endswith("/scaleStrategy")]
    assert removed == {"workersToDelete": ["worker-2", "worker-3", "worker-4"]}
    at = [group["groupName"] for group in live].index("fast-gpu")
    (replicas,) = [o["value"] for o in operations if o["path"] == f"/spec/workerGroupSpecs/{at}/replicas"]
    assert replicas == 2
