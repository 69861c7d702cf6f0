"""A control plane of its own with two nodes and an audit log, an operator and an agent with accounts of their own."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.operator.doubles import signals
from tests.operator.gitops.agent import Agent, agent_on
from tests.operator.gitops.kstatus import disagreement, kstatus
from tests.operator.gitops.repository import FOLDERS, Repository
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Json, Kubectl, install_definitions
from tests.operator.kubelet_double import KubeletDouble

from partita_devtools.control_plane.audit import AuditedRequest, read_audit_log
from partita_devtools.control_plane.binaries import Binaries
from partita_devtools.control_plane.lifecycle import ControlPlane, control_plane
from partita_devtools.machine.kubeconfig import write_kubeconfig

ACCOUNTS = "gitops"
OPERATOR, AGENT = (f"system:serviceaccount:{ACCOUNTS}:{name}" for name in ("operator", "agent"))
KINDS = ("gpupools", "inferencesessions", "pipelineplans")
NODES = {"l4-0": "NVIDIA-L4", "t4-0": "Tesla-T4"}


@dataclass
class Site:
    """A cluster that follows a repository."""

    kubectl: Kubectl
    repository: Repository
    agent: Agent
    operators: Operators
    plane: ControlPlane
    logged: int = 0

    def objects(self) -> dict[str, Json]:
        """All of Partita's objects, by kind and name. kstatus must agree with the conditions of each."""
        items: list[Json] = json.loads(self.kubectl("get", ",".join(KINDS), "--all-namespaces", "-o", "json"))["items"]
        assert [problem for item in items if (problem := disagreement(item))] == []
        return {f"{item['kind']}/{item['metadata']['name']}": item for item in items}

    def statuses(self) -> dict[str, str]:
        """What kstatus says of every object."""
        return {name: kstatus(found) for name, found in self.objects().items()}

    def versions(self) -> dict[str, str]:
        """The resource version of every object."""
        return {name: found["metadata"]["resourceVersion"] for name, found in self.objects().items()}

    def requests(self, user: str = OPERATOR) -> list[AuditedRequest]:
        """The requests of one account since the last call of `requests`."""
        found, self.logged = read_audit_log(self.plane.audit_log, self.logged)
        return [request for request in found if request.user == user]

    def session(self) -> Json:
        """The session of the example."""
        found = self.kubectl.get("isess", "traffic")
        assert found is not None
        return found

    @asynccontextmanager
    async def operated(self) -> AsyncIterator[None]:
        """An operator runs, and its sessions measure traffic that fluctuates."""

        async def fluctuate() -> None:
            while True:
                for key, spec in self.operators.engine.applied.items():
                    offered = float(spec.session.spec.rate.requests_per_second) * random.uniform(0.95, 1.05)
                    self.operators.engine.reported[key] = signals(spec.plan.metadata.name, round(offered, 2))
                await asyncio.sleep(1)

        fluctuating = asyncio.create_task(fluctuate())
        try:
            async with self.operators.running():
                yield
        finally:
            fluctuating.cancel()


@pytest.fixture
def site(kubernetes_binaries: Binaries, tmp_path: Path) -> Iterator[Site]:
    """The cluster and the agent, before the first operator runs."""
    repository = Repository.create(tmp_path)
    with ExitStack() as stack:
        plane = stack.enter_context(
            control_plane(tmp_path / "plane", binaries=kubernetes_binaries, audited_users=(OPERATOR, AGENT))
        )
        kubectl = Kubectl(plane.kubeconfig, "team-a")
        install_definitions(kubectl)
        for node, product in NODES.items():
            labels = {"nvidia.com/gpu.product": product}
            work_dir = tmp_path / node
            stack.enter_context(
                KubeletDouble(plane, node, work_dir=work_dir, labels=labels, capacity={"nvidia.com/gpu": 8})
            )
        accounts = {name: _account(kubectl, plane, name, tmp_path) for name in ("operator", "agent")}
        agent = stack.enter_context(agent_on(accounts["agent"], repository.clone, FOLDERS, tmp_path))
        yield Site(kubectl, repository, agent, Operators(accounts["operator"]), plane)


def _account(kubectl: Kubectl, plane: ControlPlane, name: str, directory: Path) -> Path:
    """An account that may do everything; returns its kubeconfig."""
    cluster = Kubectl(kubectl.kubeconfig, ACCOUNTS)
    if cluster.get("namespace", ACCOUNTS) is None:
        cluster("create", "namespace", ACCOUNTS)
    cluster("create", "serviceaccount", name)
    cluster("create", "clusterrolebinding", name, "--clusterrole=cluster-admin", f"--serviceaccount={ACCOUNTS}:{name}")
    token = cluster("create", "token", name, "--duration=24h").strip()
    kubeconfig = directory / f"{name}.kubeconfig"
    write_kubeconfig(kubeconfig, plane.url, plane.authority.certificate, token)
    return kubeconfig
