"""A node of a real Ray cluster is lost and returns: the stage is spread again, and no request fails."""

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import httpx
import pytest
from tests.fixtures import RayClusterFactory
from tests.operator.engines.ray.test_engine import OPTIONS, applications, remove_all, rolled_out, spec, traffic, until
from tests.runtime.serving.plans import EMULATED, REAL

from partita_devtools.ray_cluster.cluster import RayCluster
from partita_devtools.ray_cluster.commands import RayClassNode, RayClusterConfig
from partita_operator.engines.ray import spreading
from partita_operator.engines.ray.engine import RayServeEngine

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1200)]

STAGE = "partita.default.traffic.plan-1.a.p0.0"
TENSOR = {"name": "input", "datatype": "FP32", "shape": [1, 2, 2], "data": [1.0, 2.0, 3.0, 4.0]}


def replicas(cluster: RayCluster) -> list[dict[str, Any]]:
    (deployment,) = applications(cluster)[STAGE]["deployments"].values()
    return [replica for replica in deployment["replicas"] if replica["state"] == "RUNNING"]


def counts(cluster: RayCluster) -> list[int]:
    """Ready replicas of the stage by node, the largest number first."""
    return sorted(Counter(replica["node_id"] for replica in replicas(cluster)).values(), reverse=True)


async def test_a_stage_is_spread_again_after_a_node_returns_and_no_request_fails(
    start_ray: RayClusterFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node has room for all replicas, so the placement on both nodes is a choice."""
    monkeypatch.setattr(spreading, "SETTLED_SECONDS", 2.0)
    nodes = (RayClassNode(REAL, slots=1), RayClassNode(EMULATED, slots=2), RayClassNode(EMULATED, slots=2))
    notices_soon = {"RAY_health_check_period_ms": "1000"}
    cluster = start_ray(RayClusterConfig(nodes, environment=notices_soon))
    options = OPTIONS.model_copy(update={"frontend_resources": {f"partita-pool-{REAL}": 0.1}})
    engine = RayServeEngine(
        cluster.dashboard_url, cluster.auth_token, serve_http_port=cluster.serve_http_port, options=options
    )
    desired = spec(traffic(), 2)
    status = await rolled_out(engine, desired)

    async def spread_out() -> list[int]:
        await engine.apply(desired)
        return await asyncio.to_thread(counts, cluster)

    await until(spread_out, lambda seen: seen == [1, 1])

    await asyncio.to_thread(cluster.kill_node, f"{EMULATED}-0")
    await until(spread_out, lambda seen: seen == [2])
    await asyncio.to_thread(cluster.start_node, f"{EMULATED}-0")

    answers: Counter[int] = Counter()
    over = asyncio.Event()

    async def ask() -> None:
        async with httpx.AsyncClient(timeout=30) as client:
            while not over.is_set():
                answer = await client.post(f"{status.url}/v2/models/traffic/infer", json={"inputs": [TENSOR]})
                answers[answer.status_code] += 1

    asking = asyncio.create_task(ask())
    await until(spread_out, lambda seen: seen == [1, 1])
    before = answers.total()
    await until(partial(asyncio.sleep, 0, answers), lambda seen: seen.total() > before + 20)
    over.set()
    await asking
    assert answers.keys() == {200}

    async def message() -> str:
        await engine.apply(desired)
        seen = await engine.observe("default/traffic")
        return " ".join([seen.message, *(stage.message for plan in seen.plans for stage in plan.stages)]).strip()

    await until(message, lambda words: not words)
    await until(partial(remove_all, engine), lambda left: not left)
    await engine.close()
