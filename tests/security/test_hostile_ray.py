"""A Ray cluster that session code has taken over answers the operator with what could harm it."""

import gzip
import json
from hashlib import sha256

import pytest
from tests.builders import pool
from tests.operator.profiling.requests import IMPORTS, is_over, request, until
from tests.security.clients.hostile_server import Answering, complete, endless, server, silence

from partita_api.gpupool import Sharing, SharingMode
from partita_devtools.ray_cluster.cluster import RayCluster
from partita_operator.engines.frontend_client import FrontendClient
from partita_operator.engines.monitoring_tokens import MonitoringTokens
from partita_operator.engines.ray.engine import RayServeEngine
from partita_operator.engines.ray_dashboard import DashboardRefusedError, RayDashboard
from partita_operator.ports import EngineUnavailableError, RunPhase
from partita_operator.profiling.ray_job import RayJobRunner
from partita_operator.settings.model import OperatorSettings
from partita_operator.settings.ray import RaySettings

SECONDS = 0.5
MOST_BYTES = 1 << 20

ATTACKS = [
    pytest.param(complete(gzip.compress(bytes(300 << 20), 1), "Content-Encoding: gzip"), "compressed", id="gzip bomb"),
    pytest.param(endless(bytes(1 << 16), 0), "more than 1,048,576 bytes", id="answer without end"),
    pytest.param(endless(b" ", 0.05), "in time", id="dripping bytes"),
    pytest.param(silence, "in time", id="black hole"),
    pytest.param(complete(b"{}"), "does not answer", id="empty object"),
    pytest.param(complete(b"[]"), "does not answer", id="list in place of an object"),
    pytest.param(complete(b'{"controller_info": 1, "applications": {"a": []}}'), "does not answer", id="wrong types"),
    pytest.param(complete(b"[" * 100_000), "does not answer", id="deep nesting"),
    pytest.param(complete(b"9" * 100_000), "does not answer", id="integer of 100,000 digits"),
    pytest.param(complete(b"\xff\xfe"), "does not answer", id="not a text"),
    pytest.param(
        complete(b"", "Location: http://169.254.169.254/", status="302 Found"),
        "with 302",
        id="redirect to the metadata",
    ),
]


@pytest.mark.parametrize(("answering", "want"), ATTACKS)
async def test_every_call_of_a_dashboard_ends_with_a_clear_error(answering: Answering, want: str) -> None:
    async with server(answering) as (url, _):
        for call in (
            lambda dashboard: dashboard.get(
                "/api/serve/applications/", lambda answer: answer["applications"]["a"]["b"]
            ),
            lambda dashboard: dashboard.nodes(),
            lambda dashboard: dashboard.has_live_actor("ServeController"),
        ):
            dashboard = RayDashboard(url, timeout_seconds=SECONDS, most_bytes=MOST_BYTES)
            with pytest.raises(EngineUnavailableError, match=want):
                await call(dashboard)
            await dashboard.close()


@pytest.mark.parametrize("answering", [pytest.param(attack.values[0], id=attack.id) for attack in ATTACKS])
async def test_a_frontend_that_attacks_has_no_signals(answering: Answering) -> None:
    async with server(answering) as (url, _):
        client = FrontendClient(MonitoringTokens(), timeout_seconds=SECONDS)
        answer = await client.signals(url, "default/traffic")
        await client.close()
    assert answer.signals is None
    assert answer.problem


async def test_an_engine_without_fields_is_unavailable_and_nothing_else() -> None:
    async with server(complete(b"{}")) as (url, _):
        engine = RayServeEngine(url)
        for call in (engine.sessions, engine.capacity, engine.cluster_id):
            with pytest.raises(EngineUnavailableError, match="like a Ray dashboard"):
                await call()
        await engine.close()


async def test_a_silent_dashboard_is_asked_once_and_then_paused() -> None:
    async with server(silence) as (url, requests):
        dashboard = RayDashboard(url, timeout_seconds=SECONDS)
        for _ in range(20):
            with pytest.raises(EngineUnavailableError, match="did not answer"):
                await dashboard.nodes()
        await dashboard.close()
    assert len(requests) == 1


async def test_errors_show_nothing_of_what_the_server_sent() -> None:
    secret = json.dumps({"kwargs": "of another tenant"}).encode()
    async with server(complete(secret, status="400 Bad Request")) as (url, _):
        dashboard = RayDashboard(url)
        with pytest.raises(DashboardRefusedError) as refused:
            await dashboard.put("/api/serve/applications/", {})
        await dashboard.close()
    assert "tenant" not in str(refused.value)
    assert "400" in str(refused.value)


@pytest.mark.ray
async def test_session_code_can_read_the_token_of_its_ray_cluster(ray_cluster: RayCluster) -> None:
    """So it can do all that a client of Ray's dashboard can: run code in the processes of other sessions there."""
    environment = {"env_vars": {"PYTHONPATH": IMPORTS}}
    ray = RaySettings(address=ray_cluster.dashboard_url, token=ray_cluster.auth_token, runtime_env=environment)
    runner = RayJobRunner(OperatorSettings(ray=ray))
    asked = request("small", "tests.security.hostile_models:tells_rays_token")
    cpus = pool("small").with_spec(sharing=Sharing(mode=SharingMode.CPU)).build()

    await runner.start("default", asked, cpus, 1)
    run = await until(lambda: runner.observe("default", asked.key, 1), is_over)
    assert run.phase is RunPhase.FAILED
    assert f"token {sha256(ray_cluster.auth_token.encode()).hexdigest()}" in run.message
    await runner.remove("default", asked.key, 1)
    await runner.close()
