"""A session author tries to reach Ray clusters that the platform does not offer to the namespace."""

from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from tests.operator.engines.dashboard_double import DashboardDouble, shown_as
from tests.runtime.serving.plans import application

from partita_api.inferencesession import InferenceSession
from partita_operator.engines.ray.clusters import RayClusters
from partita_operator.engines.selection import EngineRegistry
from partita_operator.handlers.context import Context
from partita_operator.handlers.passes import remove_leftovers
from partita_operator.ports import EngineUnavailableError, ServingSpec
from partita_operator.reconcile.admission import judge_session
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.settings.model import OperatorSettings
from partita_operator.settings.ray import RayClusterSettings, RaySettings
from partita_runtime.serving.deploy.applications import frontend_name


def session(namespace: str, name: str, cluster: str | None = None) -> InferenceSession:
    made = application(name).model("a").with_spec(engine={"cluster": cluster} if cluster else {}).session
    return made.model_copy(update={"metadata": made.metadata.model_copy(update={"namespace": namespace})})


@pytest.fixture
def shared() -> Iterator[DashboardDouble]:
    """The Ray cluster of sessions that name none."""
    with DashboardDouble() as dashboard:
        yield dashboard


@pytest.fixture
def theirs() -> Iterator[DashboardDouble]:
    """A Ray cluster that only namespace `vision` may use."""
    with DashboardDouble() as dashboard:
        yield dashboard


@pytest.fixture
def settings(shared: DashboardDouble, theirs: DashboardDouble) -> OperatorSettings:
    vision = RayClusterSettings(name="vision", address=theirs.url, namespaces=("vision",))
    return OperatorSettings(
        ray=RaySettings(address=shared.url, token="platform", clusters=(vision,), tokens={"vision": "theirs"})
    )


@pytest.fixture
async def engines(settings: OperatorSettings) -> AsyncIterator[EngineRegistry]:
    clusters = RayClusters(settings)
    yield EngineRegistry(clusters, None)
    await clusters.close()


def sweep(settings: OperatorSettings, engines: EngineRegistry, *sessions: InferenceSession) -> Context:
    """What the removal of leftovers reads."""

    async def refresh() -> None:
        """The objects are those given."""

    cluster = Cluster(sessions={session.key: session for session in sessions})
    return cast(
        Context,
        SimpleNamespace(
            settings=settings,
            engines=engines,
            cache=SimpleNamespace(refused=frozenset(), refresh=refresh, cluster=lambda: cluster),
            leadership=SimpleNamespace(ensure=lambda: None),
        ),
    )


def run_frontend_of(dashboard: DashboardDouble, *keys: str) -> None:
    for key in keys:
        dashboard.apps[frontend_name(key)] = shown_as({"name": frontend_name(key)})


@pytest.mark.parametrize("cluster", ["vision", "none-of-this-name"])
async def test_a_cluster_of_others_is_neither_asked_nor_changed(
    cluster: str, settings: OperatorSettings, engines: EngineRegistry, theirs: DashboardDouble
) -> None:
    attacker = session("attacker", "traffic", cluster)
    verdict = judge_session(attacker, "", Cluster(), settings)
    assert verdict.refusal.startswith("ForbiddenRayCluster: ")
    assert theirs.url not in verdict.refusal

    engine = engines.of(attacker)
    with pytest.raises(EngineUnavailableError, match="does not offer"):
        await engine.apply(cast(ServingSpec, None))
    assert (await engine.observe(attacker.key)).message
    assert await engine.remove(attacker.key)
    await remove_leftovers(sweep(settings, engines, attacker))
    assert "Bearer platform" not in theirs.authorizations
    assert theirs.puts == []


async def test_the_api_takes_no_address_of_a_cluster() -> None:
    with pytest.raises(ValueError, match="address"):
        application("traffic").model("a").with_spec(engine={"address": "http://169.254.169.254"}).session  # noqa: B018


async def test_a_second_address_of_a_cluster_removes_nothing_of_its_sessions(
    shared: DashboardDouble,
) -> None:
    """The platform has named one cluster twice, and sessions use both names."""
    other_spelling = shared.url.replace("127.0.0.1", "localhost")
    alias = RayClusterSettings(name="alias", address=other_spelling, namespaces=("*",))
    settings = OperatorSettings(ray=RaySettings(address=shared.url, clusters=(alias,)))
    clusters = RayClusters(settings)
    engines = EngineRegistry(clusters, None)
    victim, other = session("vision", "traffic"), session("attacker", "traffic", "alias")
    run_frontend_of(shared, victim.key, other.key)

    await remove_leftovers(sweep(settings, engines, victim, other))
    await clusters.close()

    assert shared.puts == []


async def test_applications_of_namespaces_without_the_cluster_stay(
    settings: OperatorSettings, engines: EngineRegistry, theirs: DashboardDouble
) -> None:
    """They may belong to the operator of another Kubernetes cluster."""
    run_frontend_of(theirs, "elsewhere/traffic", "vision/deleted")
    await remove_leftovers(sweep(settings, engines))
    (put,) = theirs.puts
    assert [app["name"] for app in put["applications"]] == [frontend_name("elsewhere/traffic")]


async def test_a_session_with_an_unknown_cluster_keeps_what_serves(
    settings: OperatorSettings, engines: EngineRegistry, theirs: DashboardDouble
) -> None:
    mistyped = session("vision", "traffic", "visoin")
    run_frontend_of(theirs, mistyped.key)
    await remove_leftovers(sweep(settings, engines, mistyped))
    assert theirs.puts == []
