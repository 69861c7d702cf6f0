"""A namespace on the real API server with Partita's CRDs, and operators that run against it."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.operator.doubles import EngineDouble, EnginesDouble, RunnerDouble
from tests.operator.handlers.kubectl import Kubectl

from partita_api.crd import KINDS, crd
from partita_operator.dev.control_plane import ControlPlane
from partita_operator.dev.ports import free_ports
from partita_operator.handlers.operator import run_operator
from partita_operator.ports import OperatorSettings

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def cluster(control_plane: ControlPlane) -> Kubectl:
    """The control plane with the CRDs installed."""
    kubectl = Kubectl(control_plane.kubeconfig, "default")
    for kind in KINDS:
        kubectl.apply(crd(kind))
    kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
    return kubectl


@pytest.fixture
def namespace(cluster: Kubectl) -> Iterator[Kubectl]:
    """A namespace of the test's own; its sessions and all pools go at the end."""
    name = f"test-{next(_NUMBERS)}"
    cluster("create", "namespace", name)
    yield Kubectl(cluster.kubeconfig, name)
    cluster.forget_everything()
    cluster("delete", "namespace", name, "--wait=false")


@dataclass
class Operators:
    """Runs operators, one after the other, around the same doubles."""

    kubeconfig: Path
    engine: EngineDouble = field(default_factory=EngineDouble)
    runner: RunnerDouble = field(default_factory=RunnerDouble)
    solver: "InProcessSolver" = field(default_factory=lambda: InProcessSolver())
    settings: OperatorSettings = field(
        default_factory=lambda: OperatorSettings(resync_seconds=0.5, profile_backoff_seconds=1)
    )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """An operator for the length of the block."""
        metrics_port, health_port = free_ports(2)
        self.settings = replace(self.settings, metrics_port=metrics_port, health_port=health_port)
        stop = asyncio.Event()
        task = asyncio.create_task(
            run_operator(
                self.settings,
                self.kubeconfig,
                engines=EnginesDouble(self.engine),
                runner=self.runner,
                solver=self.solver,
                stop=stop,
            )
        )
        try:
            yield
        finally:
            stop.set()
            await asyncio.wait_for(task, 30)


from tests.operator.doubles import one_stage_plan  # noqa: E402

from partita_planner.problem import Outcome, PlanningProblem  # noqa: E402


class InProcessSolver:
    async def solve(self, problem: PlanningProblem) -> Outcome:
        return one_stage_plan(problem)


@pytest.fixture
def operators(cluster: Kubectl) -> Operators:
    return Operators(cluster.kubeconfig)
