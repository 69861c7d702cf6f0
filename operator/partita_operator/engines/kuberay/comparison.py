"""Compares specifications as KubeRay and the API server do. Pure."""

from collections.abc import Mapping
from typing import Any

from partita_operator.engines.kuberay.worker_groups import NUMBERS

ClusterSpec = Mapping[str, Any]
"""Specification of a RayCluster."""


def contains(present: Any, desired: Any) -> bool:
    """Whether `present` has everything that is desired; fields that the API server has added do not matter."""
    match desired:
        case Mapping():
            return isinstance(present, Mapping) and all(
                key in present and contains(present[key], value) for key, value in desired.items()
            )
        case list() | tuple():
            return (
                isinstance(present, list)
                and len(present) == len(desired)
                and all(contains(p, d) for p, d in zip(present, desired, strict=True))
            )
    return bool(present == desired)


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
