"""A node's kubelet: its configuration and its command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from partita_devtools.control_plane.binaries import Binaries
from partita_devtools.nodes.node import DevNode

PORT = 10250


def write_configuration(node: DevNode) -> None:
    """Write `kubelet.json`."""
    (node.directory / "kubelet.json").write_text(json.dumps(_configuration(node), indent=2), encoding="utf-8")


def _configuration(node: DevNode) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "port": PORT,
        "healthzPort": 0,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": node.cgroup,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        # Only this machine and its pods can reach the node's address.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "clusterDNS": [],
        "resolvConf": "/etc/resolv.conf",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        # Images are imported once, so the kubelet must not delete any on a full disk.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "makeIPTablesUtilChains": False,
        "nodeStatusUpdateFrequency": "5s",
        "serializeImagePulls": False,
    }


def command(node: DevNode, binaries: Binaries, kubeconfig: Path) -> list[str]:
    """The command line of the node's kubelet."""
    labels = ",".join(f"{key}={value}" for key, value in node.spec.labels.items())
    runtime = f"unix://{node.socket}"
    # Needed until 1.24, removed in 1.27.
    remote = ["--container-runtime=remote"] if binaries.release < (1, 24) else []
    return [
        str(binaries.directory / "kubelet"),
        f"--config={node.directory / 'kubelet.json'}",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        f"--root-dir={node.directory / 'kubelet'}",
        f"--cert-dir={node.directory / 'pki'}",
        *remote,
        f"--container-runtime-endpoint={runtime}",
        *([f"--node-labels={labels}"] if labels else []),
    ]
