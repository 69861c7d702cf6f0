"""What all pods that Partita makes have in common: the restricted Pod Security Standard, and where accelerators are."""

from typing import Any, Final

from partita_api.gpupool import GPUPool
from partita_api.meta import POOL_LABEL

SCRATCH: Final = "/tmp"
"""The one directory that a container may write to."""


def restricted_pod() -> dict[str, Any]:
    """The pod's part of the restricted standard."""
    return {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def restricted_container() -> dict[str, Any]:
    """A container's part of the restricted standard, with a root file system that cannot be written to."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def accelerator_placement(pool: GPUPool) -> dict[str, Any]:
    """The pool's nodes, which clusters often taint with the name of their accelerator; emulated ones are anywhere."""
    if pool.spec.emulation is not None:
        return {}
    return {
        "nodeSelector": dict(pool.spec.node_selector) or {POOL_LABEL: pool.metadata.name},
        "tolerations": [{"key": pool.spec.resource_name, "operator": "Exists", "effect": "NoSchedule"}],
    }


def accelerator_limits(pool: GPUPool) -> dict[str, str]:
    """One accelerator of the pool, as a container's limits; nothing where they are emulated."""
    return {} if pool.spec.emulation is not None else {pool.spec.resource_name: "1"}
