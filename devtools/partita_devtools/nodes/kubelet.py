"""A node's kubelet: its configuration and its command line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from partita_devtools.control_plane.binaries import Binaries
from partita_devtools.control_plane.releases import KUBELET
from partita_devtools.nodes import dns
from partita_devtools.nodes.node import DevNode

PORT = 10250


def write_configuration(node: DevNode, name_server: str) -> None:
    """Write `kubelet.json`. Pods ask the DNS server at the address `name_server`."""
    document = json.dumps(_configuration(node, name_server), indent=2)
    (node.directory / "kubelet.json").write_text(document, encoding="utf-8")


def _configuration(node: DevNode, name_server: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "port": PORT,
        "healthzPort": 0,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": node.cgroup,
        "enforceNodeAllocatable": [],
        "systemReserved": {"cpu": f"{_cpus_of_others(node.spec.cpus) * 1000:.0f}m"},
        "failCgroupV1": False,
        "failSwapOn": False,
        # Only this machine and its pods can reach the node's address.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "clusterDNS": [name_server],
        "clusterDomain": dns.DOMAIN,
        "resolvConf": "/etc/resolv.conf",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        # Images are imported once, so the kubelet must not delete any on a full disk.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "makeIPTablesUtilChains": False,
        "nodeStatusUpdateFrequency": "5s",
        "serializeImagePulls": False,
    }


def _cpus_of_others(cpus: float | None) -> float:
    """CPUs of the machine that the node's pods may not use.

    The kubelet counts all of them. Without this, it takes pods whose limit is more than the node has, and the kernel
    refuses such a control group.
    """
    return 0.0 if cpus is None else max(0.0, (os.cpu_count() or 1) - cpus)


def command(node: DevNode, binaries: Binaries, kubeconfig: Path) -> list[str]:
    """The command line of the node's kubelet."""
    labels = ",".join(f"{key}={value}" for key, value in node.spec.labels.items())
    runtime = f"unix://{node.socket}"
    return [
        binaries.path(KUBELET),
        f"--config={node.directory / 'kubelet.json'}",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        f"--root-dir={node.directory / 'kubelet'}",
        f"--cert-dir={node.directory / 'pki'}",
        f"--container-runtime-endpoint={runtime}",
        *([f"--node-labels={labels}"] if labels else []),
    ]
