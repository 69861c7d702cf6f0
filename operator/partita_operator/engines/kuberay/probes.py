"""Probes of the Ray pods, answered by Ray itself.

KubeRay would add probes that run `wget`, which an image need not have; then no worker is ever ready. It keeps probes
that a pod has already.
"""

from typing import Any, Final

HTTP_PORT: Final = 8000
"""Port of Serve's HTTP proxies."""
_AGENT_PORT: Final = 52365
"""Port of the dashboard agent, which a raylet lives and dies with."""

# A raylet may take minutes to start on a busy node. The numbers are KubeRay's.
_LIVENESS: Final = {"initialDelaySeconds": 30, "timeoutSeconds": 5, "periodSeconds": 5, "failureThreshold": 120}
_HEAD_READINESS: Final = {"initialDelaySeconds": 10, "timeoutSeconds": 5, "periodSeconds": 5, "failureThreshold": 10}
_PROXY_READINESS: Final = {"initialDelaySeconds": 10, "timeoutSeconds": 5, "periodSeconds": 5, "failureThreshold": 1}


def head_probes() -> dict[str, Any]:
    """The head lives and is ready while its raylet and the GCS answer. KubeRay asks its proxy itself."""
    return {"livenessProbe": _ray_answers(_LIVENESS), "readinessProbe": _ray_answers(_HEAD_READINESS)}


def worker_probes() -> dict[str, Any]:
    """A worker lives while its raylet answers, and is ready while its proxy accepts requests.

    Serve has a proxy on each node with replicas. A proxy that drains refuses, so the pod gets no new requests.
    """
    proxy_accepts = {"httpGet": {"path": "/-/healthz", "port": HTTP_PORT}, **_PROXY_READINESS}
    return {"livenessProbe": _ray_answers(_LIVENESS), "readinessProbe": proxy_accepts}


def _ray_answers(timing: dict[str, int]) -> dict[str, Any]:
    return {"httpGet": {"path": "/api/healthz", "port": _AGENT_PORT}, **timing}
