"""Variables, labels, volumes and paths that Partita, Ray and Kubernetes set themselves, so that no template may."""

import json
from collections.abc import Iterable
from typing import Final

CACHE_VARIABLES: Final = ("PARTITA_ENGINE_CACHE", "TORCHINDUCTOR_CACHE_DIR")
"""Directories of compiled models; every template may set them."""

OWN_VARIABLES: Final = (
    "CUDA_VISIBLE_DEVICES",
    "FQ_RAY_IP",
    "HOME",
    "NVIDIA_VISIBLE_DEVICES",
    "RAY_ADDRESS",
    "RAY_CLOUD_INSTANCE_ID",
    "RAY_CLUSTER_NAME",
    "RAY_CLUSTER_NAMESPACE",
    "RAY_IP",
    "RAY_NODE_TYPE_NAME",
    "RAY_PORT",
    "RAY_preload_python_modules",
    "RAY_raylet_start_wait_time_s",
)
OWN_VARIABLE_PREFIXES: Final = ("CUDA_MPS_", "KUBERAY_", "PARTITA_", "RAY_AUTH_")
"""Variables that no template may set, except for the caches."""

OWN_LABELS: Final = ("controller-uid", "job-name")
OWN_LABEL_PREFIXES: Final = ("app.kubernetes.io/", "batch.kubernetes.io/", "partita.dev/", "ray.io/")
"""Labels and annotations that no template may set."""

OWN_VOLUMES: Final = ("function-server", "ray-logs", "request-log", "scratch", "shared-mem", "transport-tls")
"""Names of volumes of Partita and KubeRay."""

OWN_PATHS: Final = ("/dev", "/etc/partita", "/proc", "/sys", "/tmp")
"""Directories of Partita, KubeRay and the container runtime."""
SHARED_MEMORY_PATH: Final = "/dev/shm"
"""The only path in OWN_PATHS where a volume may be mounted: Ray's object store."""


def is_own_variable(name: str) -> bool:
    """Whether Partita, Ray or the container runtime sets this variable."""
    return name not in CACHE_VARIABLES and (name in OWN_VARIABLES or name.startswith(OWN_VARIABLE_PREFIXES))


def is_own_label(key: str) -> bool:
    """Whether Partita, Ray or Kubernetes sets this label or annotation."""
    return key in OWN_LABELS or key.startswith(OWN_LABEL_PREFIXES)


def is_own_path(path: str) -> bool:
    """Whether a volume must not be mounted at this path."""
    return path != SHARED_MEMORY_PATH and any(path == own or path.startswith(f"{own}/") for own in OWN_PATHS)


def one_of(text: str, names: Iterable[str], prefixes: Iterable[str]) -> str:
    """The CEL expression that says whether a text is one of `names`, or begins with one of `prefixes`.

    >>> one_of("self.name", ["HOME"], ["RAY_"])
    "(self.name in ['HOME'] || ['RAY_'].exists(p, self.name.startsWith(p)))"
    """
    return f"({text} in {cel_list(names)} || {cel_list(prefixes)}.exists(p, {text}.startsWith(p)))"


def cel_list(texts: Iterable[str]) -> str:
    """A list of texts in CEL.

    >>> cel_list(["a", "b"])
    "['a', 'b']"
    """
    return json.dumps(list(texts)).replace('"', "'")
