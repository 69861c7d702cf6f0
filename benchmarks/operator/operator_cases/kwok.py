"""KWOK, which plays the kubelets of nodes that have no machine: it makes them Ready, and renews their Leases."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

VARIABLE: Final = "KWOK"
NODE_LEASE_SECONDS: Final = 1200
"""A node's Lease is renewed four times in this time. A kubelet's has 40 s: 5000 of them write 500 times a second."""
STATUS_SECONDS: Final = 300
"""Kubelets report an unchanged status so often, too."""

_CONDITIONS: Final = """
{{ $now := Now }}
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $.metadata.creationTimestamp | Quote }}
{{ end }}
"""
_READY: Final = '.status.conditions.[] | select( .type == "Ready" ) | .status'


def find_kwok() -> Path | None:
    """The program: $KWOK, else `kwok` on PATH; None if there is none."""
    found = os.environ.get(VARIABLE) or shutil.which("kwok")
    return Path(found) if found else None


def version_of(program: Path) -> str:
    """How the program names itself."""
    return subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def kubelets(program: Path, kubeconfig: Path, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run KWOK over all nodes; its configuration and its log are in `directory`."""
    stages = directory / "kwok-stages.yaml"
    stages.write_text(yaml.safe_dump_all([_stage("starts", "NotIn", 0), _stage("reports", "In", STATUS_SECONDS)]))
    command = [
        str(program),
        f"--kubeconfig={kubeconfig}",
        "--manage-all-nodes=true",
        f"--node-lease-duration-seconds={NODE_LEASE_SECONDS}",
        f"--config={stages}",
    ]
    with (directory / "kwok.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def _stage(name: str, operator: str, seconds: int) -> dict[str, object]:
    """What happens to a node that is, or is not, Ready, after about so many seconds."""
    delay = {"delay": {"durationMilliseconds": seconds * 1000, "jitterDurationMilliseconds": seconds * 1100}}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": f"node-{name}"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Node"},
            "selector": {"matchExpressions": [{"key": _READY, "operator": operator, "values": ["True"]}]},
            **(delay if seconds else {}),
            "next": {"statusTemplate": _CONDITIONS},
        },
    }
