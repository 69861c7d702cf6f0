"""The batch/v1 Job of one profiling run: pure, and always the same for the same run."""

from collections.abc import Mapping
from typing import Any, Final

from partita_api.digest import canonical_json
from partita_api.gpupool import GPUPool
from partita_api.meta import POOL_LABEL, PROFILE_LABEL
from partita_api.profile import ProfileRequest
from partita_profiling.result import REQUEST_VARIABLE

CONTAINER: Final = "profiler"
KEPT_SECONDS: Final = 3600
"""How long Kubernetes keeps a run that ended, if nobody removes it before."""
_SCRATCH: Final = "/tmp"


def job_name(key: str, attempt: int) -> str:
    """The name of a run's Job."""
    return f"partita-profile-{key}-{attempt}"


def job_manifest(
    namespace: str, request: ProfileRequest, pool: GPUPool, attempt: int, *, image: str, timeout_seconds: int
) -> dict[str, Any]:
    """The Job that runs `python -m partita_profiling` on one accelerator of the pool.

    Where the pool's accelerators are emulated it runs on any node and takes none.
    """
    labels = {
        "app.kubernetes.io/name": "partita",
        "app.kubernetes.io/component": "profiler",
        PROFILE_LABEL: request.key,
        POOL_LABEL: pool.metadata.name,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(request.key, attempt), "namespace": namespace, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": timeout_seconds,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": _pod(request, pool, image)},
        },
    }


def _pod(request: ProfileRequest, pool: GPUPool, image: str) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        **({} if pool.spec.emulation else _placement(pool)),
        "containers": [
            {
                "name": CONTAINER,
                "image": image,
                "command": ["python", "-m", "partita_profiling"],
                "env": [
                    {"name": REQUEST_VARIABLE, "value": canonical_json(request)},
                    {"name": "HOME", "value": _SCRATCH},
                ],
                "resources": {
                    "requests": {"cpu": "1", "memory": "1Gi"},
                    "limits": {} if pool.spec.emulation else {pool.spec.resource_name: "1"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                # A run that gives no result line has said why at the end of its log.
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [{"name": "scratch", "mountPath": _SCRATCH}],
            }
        ],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    }


def _placement(pool: GPUPool) -> Mapping[str, Any]:
    """The pool's nodes, which clusters often taint with the name of their accelerator."""
    return {
        "nodeSelector": dict(pool.spec.node_selector) or {POOL_LABEL: pool.metadata.name},
        "tolerations": [{"key": pool.spec.resource_name, "operator": "Exists", "effect": "NoSchedule"}],
    }
