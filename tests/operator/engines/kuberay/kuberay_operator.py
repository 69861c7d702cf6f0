"""KubeRay's operator as a process beside a control plane."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.operator.engines.kuberay.kuberay_crds import kuberay_definitions
from tests.operator.kubectl import Kubectl
from tests.patience import eventually

from partita_devtools.machine.ports import free_ports
from partita_devtools.machine.processes import ProcessIdentity, is_running, spawn, stop_all

PROGRAM_VARIABLE = "KUBERAY_OPERATOR"
"""Environment variable with the path of the program."""
_KINDS = ("rayclusters", "rayjobs", "rayservices")
"""What the operator watches; without one of them it ends."""


@contextmanager
def running_kuberay(kubectl: Kubectl, directory: Path, *options: str) -> Iterator[Callable[[], None]]:
    """KubeRay's definitions and its operator with these options, and what kills it and starts another one.

    Skips the test if there is no program.
    """
    program = os.environ.get(PROGRAM_VARIABLE)
    if not program:
        pytest.skip(f"no program of KubeRay's operator: set {PROGRAM_VARIABLE} to its path")
    metrics, health = free_ports(2)
    argv = [
        program,
        f"--kubeconfig={kubectl.kubeconfig}",
        f"--metrics-addr=127.0.0.1:{metrics}",
        f"--health-probe-bind-address=127.0.0.1:{health}",
        "--enable-leader-election=false",
        # The process has no DNS of the cluster.
        "--use-kubernetes-proxy",
        *options,
    ]
    log = directory / "kuberay-operator.log"
    processes: list[ProcessIdentity] = []

    def start() -> None:
        stop_all(processes, grace_s=0.0)
        process = spawn(argv, log=log, dies_with_parent=True)
        processes.append(process)
        eventually(lambda: _is_ready(health) or not is_running(process))
        assert is_running(process), f"KubeRay's operator ended: {log.read_text()[-2000:]}"

    with kuberay_definitions(kubectl, *_KINDS):
        try:
            start()
            yield start
        finally:
            stop_all(processes)


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5.0, trust_env=False).is_success
    except httpx.HTTPError:
        return False
