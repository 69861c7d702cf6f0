"""How long a worker pod that is told to end may go on serving. Pure.

`ray start` then drains its node: Serve starts the replicas elsewhere, and the node ends when it has none. Kubernetes
kills the pod after its grace period, whose default is shorter than such a move can take.
"""

from collections.abc import Mapping
from typing import Any, Final

from partita_operator.engines.kuberay.comparison import ClusterSpec, is_replaced
from partita_operator.engines.kuberay.worker_groups import WorkerGroup

DRAIN_VARIABLE: Final = "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"
"""Ray's variable for the seconds that a node drains at most."""
_STOP_SECONDS: Final = 30
"""What Ray's processes have to end after the drain."""


def with_drain(cluster: ClusterSpec, present: Mapping[str, Any] | None, seconds: int) -> dict[str, Any]:
    """The specification with `seconds` for the drain of each worker.

    Groups of a `present` RayService without a drain stay as they are until KubeRay replaces its Ray cluster anyway.
    """
    running: ClusterSpec = present["spec"]["rayClusterConfig"] if present is not None else {}
    replaced = not running or is_replaced(running, cluster)
    waiting = {g["groupName"] for g in running.get("workerGroupSpecs") or () if not replaced and not _drains(g)}
    groups = [g if g["groupName"] in waiting else _drained(g, seconds) for g in cluster["workerGroupSpecs"]]
    return {**cluster, "workerGroupSpecs": groups}


def _drains(group: WorkerGroup) -> bool:
    (container, *_) = group["template"]["spec"]["containers"]
    return any(variable["name"] == DRAIN_VARIABLE for variable in container.get("env") or ())


def _drained(group: WorkerGroup, seconds: int) -> dict[str, Any]:
    template = group["template"]
    (container, *others) = template["spec"]["containers"]
    environment = [variable for variable in container.get("env") or () if variable["name"] != DRAIN_VARIABLE]
    pod = {
        **template["spec"],
        "terminationGracePeriodSeconds": seconds + _STOP_SECONDS,
        "containers": [
            {**container, "env": [*environment, {"name": DRAIN_VARIABLE, "value": str(seconds)}]},
            *others,
        ],
    }
    return {**group, "template": {**template, "spec": pod}}
