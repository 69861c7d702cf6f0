"""kube-router as the NetworkPolicy implementation of the nodes."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.operator.kubectl import Kubectl

from partita_devtools.control_plane.commands import SERVICE_RANGE
from partita_devtools.machine.processes import is_running, spawn, stop_all

PROGRAM_VARIABLE = "KUBE_ROUTER"
"""Environment variable with the path of the program, cmd/kube-router of github.com/cloudnativelabs/kube-router/v2."""
_NODE = "all-nodes"


@contextmanager
def enforced_policies(admin: Kubectl, directory: Path) -> Iterator[None]:
    """NetworkPolicies are enforced on all nodes for the duration of a `with` block. Skips the test without the program.

    kube-router protects the pods of its own node, and removes all rules that it did not make. The nodes share the rules
    of the machine. So it runs once, for a Node without a kubelet that has the addresses of all.
    """
    program = os.environ.get(PROGRAM_VARIABLE)
    if not program:
        pytest.skip(f"no implementation of NetworkPolicies: set {PROGRAM_VARIABLE} to the path of kube-router")
    argv = [
        program,
        "--run-firewall=true",
        "--run-router=false",
        "--run-service-proxy=false",
        "--enable-cni=false",
        f"--kubeconfig={admin.kubeconfig}",
        f"--hostname-override={_NODE}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--health-port=0",
        "--metrics-port=0",
    ]
    _create_node(admin)
    log = directory / "kube-router.log"
    process = spawn(argv, log=log, dies_with_parent=True)
    try:
        yield
        assert is_running(process), f"kube-router ended: {log.read_text()[-2000:]}"
    finally:
        stop_all([process])
        admin("delete", "node", _NODE)
        subprocess.run([program, "--cleanup-config"], capture_output=True, check=False, timeout=120)


def _create_node(admin: Kubectl) -> None:
    addresses = [
        address
        for node in admin.list("nodes")
        for address in node["status"]["addresses"]
        if address["type"] == "InternalIP"
    ]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": _NODE}, "spec": {"unschedulable": True}}
    admin.apply(node)
    status = json.dumps({"status": {"addresses": addresses}})
    admin("patch", "node", _NODE, "--subresource=status", "--type=merge", "-p", status)
