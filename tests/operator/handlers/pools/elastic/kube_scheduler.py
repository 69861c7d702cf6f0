"""kube-scheduler as a process beside a control plane."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.patience import eventually

from partita_devtools.control_plane.binaries import find_binaries
from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_devtools.control_plane.releases import CONTROL_PLANE_PROGRAMS, SCHEDULER
from partita_devtools.errors import DevError
from partita_devtools.machine.ports import free_ports
from partita_devtools.machine.processes import is_running, spawn, stop_all


@contextmanager
def running_scheduler(plane: ControlPlane, directory: Path) -> Iterator[None]:
    """The scheduler for the duration of a `with` block. Skips the test if there is no program."""
    try:
        binaries = find_binaries(report=print, programs=(*CONTROL_PLANE_PROGRAMS, SCHEDULER))
    except DevError as error:
        pytest.skip(f"no kube-scheduler: {error}")
    (port,) = free_ports(1)
    argv = [
        binaries.path(SCHEDULER),
        f"--kubeconfig={plane.kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
    ]
    log = directory / "kube-scheduler.log"
    process = spawn(argv, log=log, dies_with_parent=True)
    try:
        eventually(lambda: _is_healthy(port) or not is_running(process))
        assert is_running(process), f"kube-scheduler ended: {log.read_text()[-2000:]}"
        yield
    finally:
        stop_all([process])


def _is_healthy(port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it signs its certificate itself
    try:
        return httpx.get(f"https://127.0.0.1:{port}/healthz", timeout=5.0, trust_env=False, verify=context).is_success
    except httpx.HTTPError:
        return False
