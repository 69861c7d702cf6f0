"""Writes to Serve, against a double of the dashboard: what is never written, and what is written again."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.operator.engines.dashboard_double import DashboardDouble, shown_as
from tests.runtime.serving.plans import application

from partita_operator.engines.ray.engine import RayServeEngine
from partita_operator.engines.rollout import RETRY_SECONDS
from partita_operator.ports import EngineUnavailableError, ServingSpec

CHAT = {"name": "chat", "import_path": "chat:app", "deployments": []}


def spec(session: str = "traffic") -> ServingSpec:
    app = application(session).model("a")
    return ServingSpec(app.session, app.plan, (), app.profiles, app.pools)


@pytest.fixture
def dashboard() -> Iterator[DashboardDouble]:
    with DashboardDouble() as double:
        yield double


@pytest.fixture
async def engine(dashboard: DashboardDouble) -> AsyncIterator[RayServeEngine]:
    made = RayServeEngine(dashboard.url, serve_url="http://127.0.0.1:1")
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("shown", "want_words"),
    [
        pytest.param({"serve_runs": False, "controller_alive": True}, "controller", id="Serve does not seem to run"),
        pytest.param({"apps": {"chat": shown_as(CHAT, deployed_app_config=None)}}, "'chat'", id="no configuration"),
        pytest.param({"status": 503}, "503", id="the read fails"),
    ],
)
async def test_a_partial_read_changes_nothing(
    dashboard: DashboardDouble, engine: RayServeEngine, shown: dict[str, Any], want_words: str
) -> None:
    for name, value in shown.items():
        setattr(dashboard, name, value)
    with pytest.raises(EngineUnavailableError, match=want_words):
        await engine.apply(spec())
    assert dashboard.puts == []


async def test_serve_is_started_if_it_does_not_run(dashboard: DashboardDouble, engine: RayServeEngine) -> None:
    dashboard.serve_runs = dashboard.controller_alive = False
    await engine.apply(spec())
    (put,) = dashboard.puts
    assert put["http_options"] == {"host": "0.0.0.0", "port": 8000}
    assert len(put["applications"]) == 2


async def test_concurrent_changes_of_several_sessions_do_not_undo_each_other(
    dashboard: DashboardDouble, engine: RayServeEngine
) -> None:
    dashboard.put_seconds = 0.05
    dashboard.apps = {"chat": shown_as(CHAT)}
    sessions = [f"session-{number}" for number in range(5)]
    await asyncio.gather(*(engine.apply(spec(name)) for name in sessions))
    assert await engine.sessions() == {f"default/{name}" for name in sessions}
    assert dashboard.apps["chat"]["deployed_app_config"] == CHAT


@pytest.mark.parametrize(
    ("age_seconds", "want_puts"),
    [(RETRY_SECONDS / 2, 1), (RETRY_SECONDS * 2, 2)],
    ids=["just failed", "failed for long"],
)
async def test_a_failed_deployment_is_repeated_after_a_while(
    dashboard: DashboardDouble, engine: RayServeEngine, age_seconds: float, want_puts: int
) -> None:
    await engine.apply(spec())
    for app in dashboard.apps.values():
        app |= {"status": "DEPLOY_FAILED", "last_deployed_time_s": app["last_deployed_time_s"] - age_seconds}
    await engine.apply(spec())
    assert len(dashboard.puts) == want_puts
    assert dashboard.puts[-1]["applications"] == dashboard.puts[0]["applications"]


async def test_the_frontend_of_a_session_is_removed_first(dashboard: DashboardDouble, engine: RayServeEngine) -> None:
    await engine.apply(spec())
    dashboard.apps["chat"] = shown_as(CHAT)
    assert not await engine.remove("default/traffic")
    assert sorted(dashboard.apps) == ["chat", "partita.default.traffic.plan-1.a.p0.0"]
    assert not await engine.remove("default/traffic")
    assert sorted(dashboard.apps) == ["chat"]
    assert await engine.remove("default/traffic")
