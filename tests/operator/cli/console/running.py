"""The console on a free port, in the event loop of the test."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
from tests.operator.cli.console.cluster_objects import document_of
from tests.patience import PATIENCE_SECONDS

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan
from partita_operator.console.web.server import ConsoleAddress, serve_console
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import load_config
from partita_operator.kube.resources import PlanResource, PoolResource, SessionResource
from partita_operator.reconcile.capacity.cluster import Cluster


@asynccontextmanager
async def running_console(
    kubeconfig: Path, *namespaces: str, names: Sequence[str] = ()
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a console that reads this cluster."""
    connection = await load_config(kubeconfig)
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    address = ConsoleAddress("127.0.0.1", 0, tuple(names))
    serving = asyncio.create_task(serve_console(connection, namespaces, address, 0.2, url.set_result))
    try:
        async with httpx.AsyncClient(base_url=await url, trust_env=False, timeout=PATIENCE_SECONDS) as client:
            yield client
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


async def until_shown(client: httpx.AsyncClient, path: str, text: str, *, shown: bool = True) -> str:
    """The page, once it contains the text, or no longer does."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            page = (await client.get(path)).text
            if (text in page) == shown:
                return page
            await asyncio.sleep(0.05)


async def apply(client: KubernetesClient, *objects: GPUPool | InferenceSession | PipelinePlan) -> None:
    """Write the objects with their statuses."""
    resources = {"GPUPool": PoolResource, "InferenceSession": SessionResource, "PipelinePlan": PlanResource}
    for each in objects:
        body = document_of(each)
        status = body.pop("status", {})
        made = await client.apply(resources[each.kind], body, force=True)
        meta = {name: made["metadata"][name] for name in ("name", "namespace") if name in made["metadata"]}
        await client.apply_status(resources[each.kind], {"metadata": meta, "status": status})


async def apply_cluster(client: KubernetesClient, cluster: Cluster) -> None:
    """Write all objects of the cluster. Its plans become plans of the sessions that this makes."""
    await apply(client, *cluster.pools.values(), *cluster.sessions.values())
    for plan in cluster.plans.values():
        owner = plan.spec.session
        made = await client.get(SessionResource, owner.name, plan.metadata.namespace or "default")
        reference = owner.model_copy(update={"uid": made["metadata"]["uid"]})
        await apply(client, plan.model_copy(update={"spec": plan.spec.model_copy(update={"session": reference})}))
