"""The common parts of all of Partita's pods: the restricted Pod Security Standard, and accelerator placement."""

from typing import Any, Final

from partita_api.gpupool import GPUPool, SharingMode
from partita_api.meta import MIG_DRAINING_LABEL
from partita_api.pool.devices import Devices
from partita_operator.kube.devices import CLAIM, claim_template_name

SCRATCH: Final = "/tmp"
"""The only directory that a container may write to."""


def restricted_pod() -> dict[str, Any]:
    """The security context of a pod under the restricted standard."""
    return {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def restricted_container() -> dict[str, Any]:
    """The security context of a container under the restricted standard, with a read-only root file system."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def accelerator_placement(pool: GPUPool) -> dict[str, Any]:
    """Node selector, affinity and tolerations for the pool's nodes, and the pod's claim of a device.

    Empty for an emulated pool, which runs anywhere.

    Clusters often taint nodes with the name of their accelerator. Nodes that drain for a change of their MIG slices
    are excluded.
    """
    if pool.spec.emulation is not None:
        return {}
    selector = pool.node_selector
    expressions: list[dict[str, Any]] = [
        {"key": e.key, "operator": str(e.operator), **({"values": list(e.values)} if e.values else {})}
        for e in selector.match_expressions
    ]
    expressions.append({"key": MIG_DRAINING_LABEL, "operator": "DoesNotExist"})
    return {
        **({"nodeSelector": dict(selector.match_labels)} if selector.match_labels else {}),
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": expressions}]
                }
            }
        },
        "tolerations": [{"key": pool.spec.resource_name, "operator": "Exists", "effect": "NoSchedule"}],
        **({"resourceClaims": [_claim(pool, pool.spec.devices)]} if pool.spec.devices is not None else {}),
    }


def _claim(pool: GPUPool, devices: Devices) -> dict[str, str]:
    return {"name": CLAIM, "resourceClaimTemplateName": claim_template_name(pool, devices)}


def mps_daemon(pool: GPUPool) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """Environment and life cycle of a container that shares its GPU by MPS; empty without MPS and for emulated pools.

    The MPS daemon runs in the container, which has a whole GPU. The daemon needs no privileges: it serves processes of
    its own user. NVIDIA's container toolkit adds its program to the container.
    """
    if pool.spec.sharing.mode is not SharingMode.MPS or pool.spec.emulation is not None:
        return [], {}
    environment = [
        {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": f"{SCRATCH}/nvidia-mps"},
        {"name": "CUDA_MPS_LOG_DIRECTORY", "value": f"{SCRATCH}/nvidia-mps-log"},
    ]
    return environment, {"lifecycle": {"postStart": {"exec": {"command": ["nvidia-cuda-mps-control", "-d"]}}}}


def accelerator_limits(pool: GPUPool) -> dict[str, str]:
    """One accelerator of the pool as the limits of a container; empty for an emulated pool and for claimed devices."""
    return {pool.spec.resource_name: "1"} if pool.spec.emulation is None and pool.spec.devices is None else {}


def accelerator_claims(pool: GPUPool) -> dict[str, Any]:
    """The claim of one device, as a field of a container's resources; empty for a pool without devices."""
    return {} if pool.spec.devices is None else {"claims": [{"name": CLAIM}]}
