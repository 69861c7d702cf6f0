"""The batch/v1 Job of one profiling run. Pure, and always the same for the same run."""

from typing import Any, Final

from partita_api.digests import canonical_json
from partita_api.gpupool import GPUPool
from partita_api.meta import POOL_LABEL, PROFILE_LABEL
from partita_api.profile import ProfileRequest
from partita_operator.kube.pods import (
    SCRATCH,
    accelerator_claims,
    accelerator_limits,
    accelerator_placement,
    mps_daemon,
    restricted_container,
    restricted_pod,
)
from partita_operator.pod_templates.manifest import with_template
from partita_operator.settings.model import ProfilingSettings
from partita_profiling.result import REQUEST_VARIABLE
from partita_runtime.models.policy import VARIABLE, ModelPolicy, policy_text

CONTAINER: Final = "profiler"
KEPT_SECONDS: Final = 3600
"""How long Kubernetes keeps a Job after its end."""


def job_name(key: str, attempt: int) -> str:
    """The name of a run's Job."""
    return f"partita-profile-{key}-{attempt}"


def job_manifest(
    namespace: str,
    request: ProfileRequest,
    pool: GPUPool,
    attempt: int,
    *,
    image: str,
    settings: ProfilingSettings,
    policy: ModelPolicy = ModelPolicy(),  # noqa: B008 - it is frozen
) -> dict[str, Any]:
    """The Job that runs `python -m partita_profiling` on one accelerator of the pool.

    If the pool's accelerators are emulated, it runs on any node and takes none.
    """
    labels = {
        "app.kubernetes.io/name": "partita",
        "app.kubernetes.io/component": "profiler",
        PROFILE_LABEL: request.key,
        POOL_LABEL: pool.metadata.name,
    }
    own = {"metadata": {"labels": labels}, "spec": _pod(request, pool, image, settings, policy)}
    pod = with_template(own, pool.spec.pod_template)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        # Kueue reads the Job's own labels.
        "metadata": {"name": job_name(request.key, attempt), "namespace": namespace, **pod["metadata"]},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": settings.timeout_seconds,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": pod,
        },
    }


def _pod(
    request: ProfileRequest, pool: GPUPool, image: str, settings: ProfilingSettings, policy: ModelPolicy
) -> dict[str, Any]:
    mps_environment, mps = mps_daemon(pool)
    restrictions = [{"name": VARIABLE, "value": policy_text(policy)}] if policy.is_set else []
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": restricted_pod(),
        **accelerator_placement(pool),
        "containers": [
            {
                "name": CONTAINER,
                "image": image,
                "command": ["python", "-m", "partita_profiling"],
                "env": [
                    {"name": REQUEST_VARIABLE, "value": canonical_json(request)},
                    {"name": "HOME", "value": SCRATCH},
                    *restrictions,
                    *mps_environment,
                ],
                "resources": {
                    # Without a request of local disk, the request would be the limit.
                    "requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "0"},
                    "limits": {
                        "memory": settings.memory_limit,
                        "ephemeral-storage": settings.storage_limit,
                        **accelerator_limits(pool),
                    },
                    **accelerator_claims(pool),
                },
                "securityContext": restricted_container(),
                # A run without a result line has its error at the end of its log.
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [{"name": "scratch", "mountPath": SCRATCH}],
                **mps,
            }
        ],
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": settings.storage_limit}}],
    }
