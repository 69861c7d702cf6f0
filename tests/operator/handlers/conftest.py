"""A namespace on the real API server with Partita's CRDs, and operators that run against it."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from tests.operator.doubles import EngineDouble, EnginesDouble, RunnerDouble
from tests.operator.kubectl import Kubectl, cluster_with_crds
from tests.patience import PATIENCE_SECONDS

from partita_devtools.machine.ports import free_ports
from partita_operator.handlers.operator import run_operator
from partita_operator.settings.model import HealthSettings, MetricsSettings, OperatorSettings, ProfilingSettings
from partita_planner.planning import plan
from partita_planner.problem import Outcome, PlanningProblem

_NUMBERS = itertools.count(1)
cluster = cluster_with_crds


@pytest.fixture
def namespace(cluster: Kubectl) -> Iterator[Kubectl]:
    """A separate namespace for the test. It is deleted at the end, with the pools of these tests."""
    name = f"handlers-{next(_NUMBERS)}"
    cluster("create", "namespace", name)
    yield Kubectl(cluster.kubeconfig, name)
    cluster.clear(name)


class InProcessSolver:
    """The real planner, in a thread of this process."""

    def __init__(self) -> None:
        self.problems: list[PlanningProblem] = []

    async def solve(self, namespace: str, problem: PlanningProblem) -> Outcome:
        self.problems.append(problem)
        return await asyncio.to_thread(plan, problem)


@dataclass
class Operators:
    """Runs operators one after the other, with the same doubles."""

    kubeconfig: Path
    engine: EngineDouble = field(default_factory=EngineDouble)
    runner: RunnerDouble = field(default_factory=RunnerDouble)
    solver: InProcessSolver = field(default_factory=InProcessSolver)
    settings: OperatorSettings = field(
        default_factory=lambda: OperatorSettings(resync_seconds=0.5, profiling=ProfilingSettings(backoff_seconds=1))
    )

    ended: bool = False
    """Whether the last started operator has ended."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs an operator in a `with` block."""
        metrics_port, health_port = free_ports(2)
        ports = {"metrics": MetricsSettings(port=metrics_port), "health": HealthSettings(port=health_port)}
        self.settings = self.settings.model_copy(update=ports)
        stop = asyncio.Event()
        running = asyncio.create_task(
            run_operator(
                self.settings,
                self.kubeconfig,
                engines=EnginesDouble(self.engine),
                runner=self.runner,
                solver=self.solver,
                stop=stop,
            )
        )
        self.ended = False
        running.add_done_callback(lambda _: setattr(self, "ended", True))
        try:
            yield
        finally:
            stop.set()
            await asyncio.wait_for(running, PATIENCE_SECONDS)

    async def metrics(self) -> str:
        """The running operator's metrics."""
        return await self._get(self.settings.metrics.port, "/metrics")

    async def health(self) -> str:
        """The answer of the running operator's liveness endpoint."""
        return await self._get(self.settings.health.port, "/healthz")

    async def _get(self, port: int, path: str) -> str:
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"http://127.0.0.1:{port}{path}")
        answer.raise_for_status()
        return answer.text


@pytest.fixture
def operators(cluster: Kubectl) -> Operators:
    """Operators on the cluster; none runs yet."""
    return Operators(cluster.kubeconfig)
