"""What all pods that Partita makes have in common: the restricted Pod Security Standard, and where accelerators are."""

from typing import Any, Final

from partita_api.gpupool import GPUPool, SharingMode
from partita_api.meta import MIG_DRAINING_LABEL, POOL_LABEL

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
    """The pool's nodes, which clusters often taint with the name of their accelerator; emulated ones are anywhere.

    Nodes whose GPUs are about to be cut into other slices are left alone.
    """
    if pool.spec.emulation is not None:
        return {}
    undisturbed = {"key": MIG_DRAINING_LABEL, "operator": "DoesNotExist"}
    return {
        "nodeSelector": dict(pool.spec.node_selector) or {POOL_LABEL: pool.metadata.name},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [undisturbed]}]
                }
            }
        },
        "tolerations": [{"key": pool.spec.resource_name, "operator": "Exists", "effect": "NoSchedule"}],
    }


def mps_daemon(pool: GPUPool) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """Environment and life cycle of a container whose accelerator is divided by MPS: its daemon runs in the container.

    The container has a whole GPU, and the daemon needs no rights: it serves processes of its own user. NVIDIA's
    container toolkit puts its program there. Nothing of it where the pool is not divided, or emulated.
    """
    if pool.spec.sharing.mode is not SharingMode.MPS or pool.spec.emulation is not None:
        return [], {}
    environment = [
        {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": f"{SCRATCH}/nvidia-mps"},
        {"name": "CUDA_MPS_LOG_DIRECTORY", "value": f"{SCRATCH}/nvidia-mps-log"},
    ]
    return environment, {"lifecycle": {"postStart": {"exec": {"command": ["nvidia-cuda-mps-control", "-d"]}}}}


def accelerator_limits(pool: GPUPool) -> dict[str, str]:
    """One accelerator of the pool, as a container's limits; nothing where they are emulated."""
    return {} if pool.spec.emulation is not None else {pool.spec.resource_name: "1"}
