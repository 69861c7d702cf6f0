"""The manifests of a population (nodes, pools, sessions), and their installation on an API server."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from partita_api.crd_schema import KINDS, crd
from partita_api.meta import API_VERSION
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.errors import ApiError
from partita_operator.kube.resources import (
    DefinitionResource,
    NamespaceResource,
    NodeResource,
    PoolResource,
    SessionResource,
)

POOL_LABEL: Final = "population/pool"
GPUS_A_NODE: Final = 4
SESSIONS_A_NAMESPACE: Final = 50
POOLS_A_SESSION: Final = 3
_AT_ONCE: Final = 32
_CHANGED: Final = 10
"""Sessions whose spec is changed while the operator restarts."""
_IMAGES: Final = 40
"""Container images in a node's status, which are most of it on real nodes."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Population:
    """The number of objects of each kind."""

    sessions: int
    pools: int
    nodes: int
    kubelets: bool = False
    """Whether something plays the kubelets and makes the nodes Ready; else they are created Ready."""

    def definitions(self) -> list[Json]:
        return [crd(kind) for kind in KINDS]

    def namespaces(self) -> list[str]:
        return [f"team-{i}" for i in range(-(-self.sessions // SESSIONS_A_NAMESPACE))]

    def node_manifests(self) -> Iterable[Json]:
        for i in range(self.nodes):
            gpus = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": str(GPUS_A_NODE)}
            images = [
                {"names": [f"registry.example/team/image-{i % 50}-{n}@sha256:{n:064d}"], "sizeBytes": 10**9}
                for n in range(_IMAGES)
            ]
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is ready"}
            yield {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"node-{i}", "labels": {POOL_LABEL: _pool(i % self.pools)}},
                "status": {
                    "allocatable": gpus,
                    "capacity": gpus,
                    "conditions": [] if self.kubelets else [ready],
                    "images": images,
                },
            }

    def pool_manifests(self) -> Iterable[Json]:
        for i in range(self.pools):
            curves = [{"model": "*", "alphaMicros": 1000, "betaMicros": 4000}]
            spec = {
                "nodeSelector": {"matchLabels": {POOL_LABEL: _pool(i)}},
                "pricePerHour": str(1 + i % 5),
                "emulation": {"curves": curves},
            }
            yield {"apiVersion": API_VERSION, "kind": "GPUPool", "metadata": {"name": _pool(i)}, "spec": spec}

    def session_manifests(self) -> Iterable[Json]:
        for i in range(self.sessions):
            pools = sorted({_pool((i + 7 * n) % self.pools) for n in range(POOLS_A_SESSION)})
            modules = [
                {"name": name, "model": {"entrypoint": f"models:{name}"}, "input": {"shape": [3, 32, 32]}}
                for name in ("detector", "classifier")
            ]
            yield {
                "apiVersion": API_VERSION,
                "kind": "InferenceSession",
                "metadata": {
                    "name": f"session-{i}",
                    "namespace": f"team-{i // SESSIONS_A_NAMESPACE}",
                },
                "spec": {
                    "slo": {"latencyMs": 200},
                    "rate": {"requestsPerSecond": 50 + i % 100},
                    "priority": i % 3,
                    "pools": pools,
                    "modules": modules,
                    "edges": [{"from": "detector", "to": "classifier"}],
                },
            }


async def install(client: KubernetesClient, population: Population) -> None:
    """Partita's definitions, the namespaces, the nodes and the pools. Sessions come by `add_sessions`."""
    for definition in population.definitions():
        await client.create(DefinitionResource, definition)
    for _ in range(100):
        try:
            await client.list(SessionResource)
            break
        except ApiError:  # the kind is not served yet
            await asyncio.sleep(0.2)
    for name in population.namespaces():
        await client.create(NamespaceResource, {"metadata": {"name": name}})
    await _all(client, NodeResource, population.node_manifests())
    await _all(client, PoolResource, population.pool_manifests())


async def add_sessions(client: KubernetesClient, population: Population) -> None:
    """All sessions, as one `kubectl apply` of many would bring them."""
    await _all(client, SessionResource, population.session_manifests())


async def changed_sessions(
    client: KubernetesClient, population: Population, number: int
) -> Callable[[], Awaitable[bool]]:
    """Change the rates of ten sessions, once for each `number`. The answer says whether all ten are Ready with that."""
    every = max(1, population.sessions // _CHANGED)
    chosen = [m for i, m in enumerate(population.session_manifests()) if i % every == 0][:_CHANGED]
    for manifest in chosen:
        rate = {"requestsPerSecond": manifest["spec"]["rate"]["requestsPerSecond"] + number}
        meta = manifest["metadata"]
        await client.patch(SessionResource, meta["name"], {"spec": {"rate": rate}}, meta["namespace"])

    async def are_ready() -> bool:
        return all([await _is_ready(client, manifest["metadata"]) for manifest in chosen])

    return are_ready


async def _is_ready(client: KubernetesClient, meta: Json) -> bool:
    found = await client.get(SessionResource, meta["name"], meta["namespace"])
    generation, conditions = found["metadata"]["generation"], found["status"]["conditions"]
    return any((c["type"], c["status"], c["observedGeneration"]) == ("Ready", "True", generation) for c in conditions)


async def _all(client: KubernetesClient, kind: Any, manifests: Iterable[Json]) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def create(manifest: Json) -> None:
        async with slots:
            await client.create(kind, manifest)

    await asyncio.gather(*(create(manifest) for manifest in manifests))


def _pool(number: int) -> str:
    return f"pool-{number}"
