"""The engine against a real Ray cluster, with real frontends and emulated accelerators."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.fixtures import RayClusterFactory
from tests.patience import PATIENCE_SECONDS
from tests.runtime.serving.plans import EMULATED, REAL, Application, application

from partita_api.fields.quantity import Quantity
from partita_api.gpupool import Emulation
from partita_devtools.ray_cluster.cluster import RayCluster
from partita_devtools.ray_cluster.commands import RayClassNode, RayClusterConfig
from partita_devtools.ray_cluster.serve import APPLICATIONS_PATH, deploy
from partita_operator.engines.ray.engine import RayServeEngine
from partita_operator.engines.rollout import ADVICE
from partita_operator.ports import EngineUnavailableError, ServingSpec, ServingStatus, StageTarget
from partita_runtime.serving.deploy.applications import ServingOptions

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1200)]

SLOTS = 4
CHAT = {
    "name": "chat",
    "route_prefix": "/chat",
    "import_path": "tests.operator.engines.chat:application",
    "runtime_env": {"env_vars": {"API_KEY": "not-to-be-lost"}},
}
OPTIONS = ServingOptions(frontend_cpus=0.1, stage_cpus=0.1, health_check_seconds=1.0, drain_seconds=5.0)


@pytest.fixture(scope="module")
def cluster(start_ray: RayClusterFactory) -> RayCluster:
    """A separate cluster: a test restarts it, and it has an application of another owner."""
    nodes = (RayClassNode(EMULATED, slots=SLOTS), RayClassNode(REAL, slots=1))
    return start_ray(RayClusterConfig(nodes))


@pytest.fixture
async def engine(cluster: RayCluster) -> AsyncIterator[RayServeEngine]:
    made = RayServeEngine(
        cluster.dashboard_url, cluster.auth_token, serve_http_port=cluster.serve_http_port, options=OPTIONS
    )
    yield made
    await until(partial(remove_all, made), lambda left: not left)
    await made.close()


async def remove_all(engine: RayServeEngine) -> frozenset[str]:
    """Keys of the sessions with applications."""
    for key in await engine.sessions():
        await engine.remove(key)
    return await engine.sessions()


def traffic() -> Application:
    return application("traffic").model("a")


def spec(app: Application, *replicas: int) -> ServingSpec:
    targets = tuple(
        StageTarget("a", pipeline.name, at, replicas[at] if at < len(replicas) else stage.replicas)
        for pipeline in app.plan.spec.modules[0].pipelines
        for at, stage in enumerate(pipeline.stages)
    )
    return ServingSpec(app.session, app.plan, targets, app.profiles, app.pools)


async def until(look: Callable[[], Awaitable[Any]], accepts: Callable[[Any], bool]) -> Any:
    """The first accepted state; fails after the deadline."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not accepts(seen := await look()):
        assert time.monotonic() < deadline, f"still {seen}"
        await asyncio.sleep(0.5)
    return seen


async def rolled_out(engine: RayServeEngine, desired: ServingSpec) -> ServingStatus:
    """Apply until the plan serves with all replicas and old stages are removed, as the reconciler does."""
    targets = {(t.module, t.pipeline, t.stage): t.replicas for t in desired.targets}

    async def step() -> ServingStatus:
        await engine.apply(desired)
        return await engine.observe(desired.session.key)

    def is_done(status: ServingStatus) -> bool:
        return (
            status.serving_plan == desired.plan.metadata.name
            and [plan.plan for plan in status.plans] == [desired.plan.metadata.name]
            and {(s.module, s.pipeline, s.stage): s.ready for s in status.plans[0].stages} == targets
        )

    found = await until(step, is_done)
    assert isinstance(found, ServingStatus)
    return found


def applications(cluster: RayCluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.get(APPLICATIONS_PATH)["applications"]
    return found


def replicas_of(app: dict[str, Any]) -> list[str]:
    return [replica["replica_id"] for d in app["deployments"].values() for replica in d["replicas"]]


async def deploy_chat(cluster: RayCluster) -> None:
    """Deploy an application as another user of the cluster."""
    await asyncio.to_thread(deploy, cluster, {"applications": [CHAT]}, host="0.0.0.0")

    async def look() -> str:
        return str(applications(cluster).get("chat", {}).get("status"))

    await until(look, lambda status: status == "RUNNING")


async def test_a_session_starts_switches_to_another_plan_and_is_removed(
    cluster: RayCluster, engine: RayServeEngine
) -> None:
    await deploy_chat(cluster)
    chat = applications(cluster)["chat"]
    one, two = traffic().planned("plan-1"), traffic().planned("plan-2", stages=2)

    status = await rolled_out(engine, spec(one))
    assert status.frontend_ready
    assert status.message == ""
    assert status.url == f"http://127.0.0.1:{cluster.serve_http_port}/default/traffic"
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{status.url}/v2/health/ready")).is_success
    assert await engine.sessions() == {"default/traffic"}
    signals = await engine.signals("default/traffic")
    assert signals is not None
    assert (signals.plan, [stage.ready for stage in signals.stages]) == ("plan-1", [1])

    before = {name: app["last_deployed_time_s"] for name, app in applications(cluster).items()}
    await engine.apply(spec(one))
    assert {name: app["last_deployed_time_s"] for name, app in applications(cluster).items()} == before

    frontend = replicas_of(applications(cluster)["partita.default.traffic.frontend"])
    await rolled_out(engine, spec(one, 2))
    await rolled_out(engine, spec(two))
    assert replicas_of(applications(cluster)["partita.default.traffic.frontend"]) == frontend

    await until(lambda: engine.remove("default/traffic"), bool)
    assert await engine.remove("default/traffic")
    assert await engine.sessions() == frozenset()
    left = applications(cluster)
    assert set(left) == {"chat"}
    assert replicas_of(left["chat"]) == replicas_of(chat)
    assert left["chat"]["deployed_app_config"] == CHAT


async def test_requests_are_answered_while_the_plan_changes(engine: RayServeEngine) -> None:
    one, two = traffic().planned("plan-1"), traffic().planned("plan-2", batch_size=4)
    status = await rolled_out(engine, spec(one))
    async with asking(status.url) as answered:
        await rolled_out(engine, spec(two))
        await answered()


async def test_requests_are_answered_while_a_second_frontend_starts_and_stops(
    cluster: RayCluster, engine: RayServeEngine
) -> None:
    async def frontends(count: int) -> str:
        """Apply until that many frontends run and know of each other, and none is leaving.

        Returns the session's address.
        """
        app = traffic().planned("plan-1").with_spec(frontend={"replicas": count, "httpPort": 0})

        async def look() -> tuple[list[str], int]:
            status = await rolled_out(engine, spec(app))
            running = applications(cluster)["partita.default.traffic.frontend"]["deployments"].values()
            states = [replica["state"] for deployment in running for replica in deployment["replicas"]]
            return states, len((status.http_address or "").split(","))

        await until(look, lambda seen: seen == (["RUNNING"] * count, count))
        return (await engine.observe("default/traffic")).url

    async with asking(await frontends(1)) as answered:
        await frontends(2)
        await answered()
        await frontends(1)
        await answered()


@asynccontextmanager
async def asking(url: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Requests one after the other; all must be answered. Yields a function that waits for some more answers."""
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 2, 2], "data": [1.0, 2.0, 3.0, 4.0]}
    answers: list[str] = []
    done = asyncio.Event()

    async def ask() -> None:
        async with httpx.AsyncClient(timeout=30) as client:
            while not done.is_set():
                answer = await client.post(f"{url}/v2/models/traffic/infer", json={"inputs": [tensor]})
                answers.append("answered" if answer.is_success else f"{answer.status_code}: {answer.text}")

    async def answered() -> None:
        before = len(answers)
        await until(lambda: asyncio.sleep(0, len(answers)), lambda count: count > before + 10)

    async with asyncio.TaskGroup() as group:
        group.create_task(ask())
        try:
            await answered()
            yield answered
        finally:
            done.set()
    assert set(answers) == {"answered"}


async def test_if_both_plans_do_not_fit_the_old_one_is_removed_first_with_a_message(engine: RayServeEngine) -> None:
    one = traffic().planned("plan-1", stages=SLOTS)
    two = traffic().planned("plan-2")
    await rolled_out(engine, spec(one))

    async def message() -> str:
        await engine.apply(spec(two))
        return (await engine.observe("default/traffic")).message

    await until(message, lambda words: "removed first" in words)
    await rolled_out(engine, spec(two))


async def test_a_resource_that_no_node_has_is_named(engine: RayServeEngine) -> None:
    await engine.apply(on_pool_with(ray_resource="partita-pool-absent"))
    await until(partial(stage_messages, engine), lambda words: "the Ray cluster has no partita-pool-absent" in words)


async def test_a_model_that_cannot_be_imported_is_named(engine: RayServeEngine) -> None:
    await engine.apply(on_pool_with(emulation=Emulation(slowdown=Quantity("1"))))
    await until(partial(stage_messages, engine), lambda words: "cannot import tests.models" in words)


def on_pool_with(**fields: Any) -> ServingSpec:
    """The session on a pool with these changed fields of the spec."""
    desired = spec(traffic())
    pool = desired.pools[EMULATED]
    changed = pool.model_copy(update={"spec": pool.spec.model_copy(update=fields)})
    return replace(desired, pools={**desired.pools, EMULATED: changed})


async def stage_messages(engine: RayServeEngine) -> str:
    status = await engine.observe("default/traffic")
    return " ".join(stage.message for plan in status.plans for stage in plan.stages)


async def test_a_cluster_has_one_name_at_all_its_addresses(cluster: RayCluster, engine: RayServeEngine) -> None:
    again = RayServeEngine(cluster.dashboard_url.replace("127.0.0.1", "localhost"), cluster.auth_token)
    assert await again.cluster_id() == await engine.cluster_id() != ""
    await again.close()


async def test_the_capacity_comes_from_the_nodes(engine: RayServeEngine) -> None:
    assert (await engine.capacity())[f"partita-pool-{EMULATED}"] == SLOTS


async def test_a_wrong_token_is_an_error_that_names_the_setting(cluster: RayCluster) -> None:
    engine = RayServeEngine(cluster.dashboard_url, "0" * 32)
    with pytest.raises(EngineUnavailableError, match=r"ray\.tokenSecret"):
        await engine.apply(spec(traffic()))
    await engine.close()


async def test_after_a_restart_of_the_cluster_everything_is_applied_again(
    cluster: RayCluster, engine: RayServeEngine
) -> None:
    desired = spec(traffic())
    await rolled_out(engine, desired)
    restarting = asyncio.create_task(asyncio.to_thread(cluster.restart))

    async def error() -> str:
        try:
            await engine.apply(desired)
        except EngineUnavailableError as error:
            return str(error)
        return ""

    await until(error, lambda words: cluster.dashboard_url in words)
    await restarting
    await rolled_out(engine, desired)


async def test_the_proposed_command_shows_the_resources_of_the_cluster(cluster: RayCluster) -> None:
    (command,) = re.findall(r"`([^`]+)`", ADVICE)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, **cluster.client_environment, "PATH": path}

    def run() -> str:
        """A cluster that has just started has no status yet, and the command fails."""
        ended = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=False)
        return ended.stdout + ended.stderr

    await until(partial(asyncio.to_thread, run), lambda shown: f"/{SLOTS}.0 partita-pool-{EMULATED}" in shown)
