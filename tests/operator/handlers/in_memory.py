"""Everything of an operator but its watches, on an API server in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from lightkube import AsyncClient
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster as Server
from lightkube.config.models import User
from tests.operator.doubles import EngineDouble, EnginesDouble, RunnerDouble, one_stage_plan
from tests.operator.handlers.faults.api_double import Json

from partita_api.meta import FIELD_MANAGER
from partita_operator.handlers.context import Context
from partita_operator.handlers.leadership import Leadership
from partita_operator.handlers.metrics import Metrics
from partita_operator.handlers.plan_searches import PlanSearches
from partita_operator.kube.cache import ClusterCache
from partita_operator.kube.profiles import ProfileStore
from partita_operator.kube.writes import ObjectWriter
from partita_operator.ports import OperatorSettings
from partita_planner.problem import Outcome, PlanningProblem

SETTINGS = OperatorSettings(profile_backoff_seconds=0)


class OneStageSolver:
    """Answers at once."""

    async def solve(self, problem: PlanningProblem) -> Outcome:
        return one_stage_plan(problem)


@asynccontextmanager
async def operator_on(
    api: httpx2.AsyncBaseTransport, engine: EngineDouble, runner: RunnerDouble
) -> AsyncIterator[Context]:
    """What the passes of one operator work with; it has seen nothing yet."""
    config = KubeConfig.from_one(cluster=Server(server="http://api"), user=User(token="t")).get()
    async with AsyncClient(config=config, field_manager=FIELD_MANAGER, transport=api) as client:
        cache, metrics = ClusterCache(client), Metrics()
        searches = PlanSearches(OneStageSolver(), metrics, on_answer=lambda _: None)
        try:
            yield Context(
                settings=SETTINGS,
                client=client,
                cache=cache,
                writer=ObjectWriter(client, cache),
                profiles=ProfileStore(client),
                engines=EnginesDouble(engine),
                runner=runner,
                searches=searches,
                metrics=metrics,
                leadership=Leadership(None, SETTINGS.lease_seconds),
            )
        finally:
            await searches.close()


def in_default(manifest: Json) -> Json:
    """The manifest, in namespace default."""
    manifest["metadata"]["namespace"] = "default"
    return manifest
