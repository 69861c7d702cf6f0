"""Compares specifications of Ray clusters as KubeRay does. Pure."""

from collections.abc import Mapping
from typing import Any

from partita_operator.engines.kuberay.worker_groups import NUMBERS
from partita_operator.reconcile.object_changes import contains

ClusterSpec = Mapping[str, Any]
"""Specification of a RayCluster."""


def is_replaced(present: ClusterSpec, desired: ClusterSpec) -> bool:
    """Whether KubeRay would make another Ray cluster for the `desired` specification.

    It changes in place only the numbers of pods and groups that are appended.
    """
    known = len(present.get("workerGroupSpecs") or ())
    return not contains(_compared(present, known), _compared(desired, known))


def _compared(cluster: ClusterSpec, groups: int) -> dict[str, Any]:
    compared = [
        {key: value for key, value in group.items() if key not in NUMBERS}
        for group in cluster["workerGroupSpecs"][:groups]
    ]
    return {**cluster, "workerGroupSpecs": compared}
