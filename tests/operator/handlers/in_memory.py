"""A whole operator except its watches, on an API server in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import patch

from kubernetes.aio.client import ApiClient, Configuration
from tests.operator.doubles import EngineDouble, EnginesDouble, RunnerDouble, one_stage_plan
from tests.operator.handlers.faults.api_double import Api, Json, RestClientDouble

from partita_operator.handlers.context import Context
from partita_operator.handlers.leadership import Leadership
from partita_operator.handlers.metrics import Metrics
from partita_operator.handlers.plan_searches import PlanSearches
from partita_operator.handlers.quality_checks import QualityChecks
from partita_operator.kube.cache import ClusterCache
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import Connection
from partita_operator.kube.profiles import ProfileStore
from partita_operator.kube.writes import ObjectWriter
from partita_operator.settings.model import OperatorSettings, ProfilingSettings
from partita_planner.problem import Outcome, PlanningProblem

SETTINGS = OperatorSettings(profiling=ProfilingSettings(backoff_seconds=0))


class OneStageSolver:
    """A solver that answers at once."""

    async def solve(self, namespace: str, problem: PlanningProblem) -> Outcome:
        return one_stage_plan(problem)


def client_of(api: Api, connection: Connection | None = None) -> KubernetesClient:
    """A client whose requests `api` answers."""
    connection = connection or Connection(Configuration(host="http://api", api_key={"BearerToken": "Bearer t"}))
    # The real one would load all certificates of the machine, which takes 80 ms.
    with patch("kubernetes.aio.client.rest.RESTClientObject", lambda _: RestClientDouble(api)):
        return KubernetesClient(connection, api_client=ApiClient(connection.configuration))


@asynccontextmanager
async def operator_on(api: Api, engine: EngineDouble, runner: RunnerDouble) -> AsyncIterator[Context]:
    """The state of one operator before its first pass."""
    async with client_of(api) as client:
        cache, metrics = ClusterCache(client), Metrics()
        searches = PlanSearches(OneStageSolver(), metrics, on_answer=lambda _: None)
        checks = QualityChecks(on_answer=lambda _: None)
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
                checks=checks,
                metrics=metrics,
                leadership=Leadership(None, SETTINGS.leader_election.lease_duration_seconds),
            )
        finally:
            await searches.close()
            await checks.close()


def in_default(manifest: Json) -> Json:
    """The manifest, in namespace default."""
    manifest["metadata"]["namespace"] = "default"
    return manifest
