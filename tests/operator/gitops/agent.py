"""The agent of Argo CD's gitops-engine, a program of its own. GITOPS_AGENT is its path."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from partita_devtools.machine.ports import free_ports

RESYNC_SECONDS = 10


@dataclass(frozen=True)
class Agent:
    """A running agent."""

    port: int
    log: Path

    def sync(self) -> None:
        """Synchronize now."""
        httpx.get(f"http://127.0.0.1:{self.port}/api/v1/sync", timeout=300, trust_env=False).raise_for_status()

    def results(self) -> list[str]:
        """What it reported of every object that it synchronized."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if line.startswith(("partita.dev/", "/Namespace/"))]


@contextlib.contextmanager
def agent_on(kubeconfig: Path, repository: Path, folders: Sequence[str], directory: Path) -> Iterator[Agent]:
    """An agent that synchronizes the folders of a repository with the cluster; the test is skipped without it."""
    program = os.environ.get("GITOPS_AGENT")
    if not program:
        pytest.skip("GITOPS_AGENT is not the path of the agent of Argo CD's gitops-engine")
    (port,) = free_ports(1)
    command = [
        program,
        str(repository),
        *(f"--path={folder}" for folder in folders),
        f"--kubeconfig={kubeconfig}",
        f"--resync-seconds={RESYNC_SECONDS}",
        f"--port={port}",
        "--default-namespace=default",
    ]
    log = directory / "agent.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield Agent(port, log)
        finally:
            process.terminate()
            process.wait()
