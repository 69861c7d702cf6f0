"""How long a worker pod that is told to end may go on serving. Pure.

`ray start` then drains its node: Serve starts the replicas elsewhere, and the node ends when it has none. Kubernetes
kills the pod after its grace period, whose default is shorter than such a move can take.
"""

from collections.abc import Collection
from typing import Any, Final

from partita_operator.engines.kuberay.comparison import ClusterSpec
from partita_operator.engines.kuberay.worker_groups import WorkerGroup

DRAIN_VARIABLE: Final = "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"
"""Ray's variable for the seconds that a node drains at most."""
_STOP_SECONDS: Final = 30
"""What Ray's processes have to end after the drain."""


def with_drain(cluster: ClusterSpec, seconds: int, *, without: Collection[str] = ()) -> dict[str, Any]:
    """The specification with `seconds` for the drain of each worker, except in the groups named by `without`."""
    groups = [g if g["groupName"] in without else _drained(g, seconds) for g in cluster["workerGroupSpecs"]]
    return {**cluster, "workerGroupSpecs": groups}


def groups_without_drain(cluster: ClusterSpec) -> frozenset[str]:
    """Names of the worker groups that were made before there was a drain."""
    return frozenset(group["groupName"] for group in cluster.get("workerGroupSpecs") or () if not _drains(group))


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
