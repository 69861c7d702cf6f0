"""The demonstration's side of the Kubernetes API: apply what a person would, and look at what comes of it."""

import asyncio
import time
from functools import partial
from typing import Any, Final

from partita_api.crd_schema import KINDS, crd
from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_devtools.demo.conditions import Observation
from partita_devtools.demo.errors import DemoError
from partita_devtools.demo.example import Example
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.connection import Connection
from partita_operator.kube.errors import ApiError, is_missing
from partita_operator.kube.resources import (
    DefinitionResource,
    PlanResource,
    PoolResource,
    SessionResource,
    read_plan,
)
from partita_operator.kube.retries import retried

FIELD_MANAGER: Final = "partita-demo"
_ESTABLISHED_TIMEOUT_S: Final = 30.0


def demo_client(connection: Connection) -> KubernetesClient:
    """A client that writes as the demonstration, not as the operator."""
    return KubernetesClient(connection, FIELD_MANAGER)


async def apply_crds(client: KubernetesClient) -> None:
    """Apply Partita's CRDs and wait until they are served. Raises DemoError if they are not."""
    for kind in KINDS:
        await _put_definition(client, crd(kind))
    deadline = time.monotonic() + _ESTABLISHED_TIMEOUT_S
    for name in (crd(kind)["metadata"]["name"] for kind in KINDS):
        while not _established(await retried(partial(client.get, DefinitionResource, name))):
            if time.monotonic() > deadline:
                raise DemoError(f"the CRD {name} is not served; see why: kubectl describe crd {name}")
            await asyncio.sleep(0.1)


async def apply_example(client: KubernetesClient, example: Example) -> None:
    """Apply the pools and the session. Raises DemoError with the API server's message if it refuses one."""
    for pool in example.pools:
        await _apply(client, PoolResource, pool)
    await _apply(client, SessionResource, example.session)


async def observe(client: KubernetesClient, example: Example) -> Observation:
    """The example's objects as they are now."""
    namespace, name = example.session.metadata.namespace or "", example.session.metadata.name
    session = await retried(partial(client.get, SessionResource, name, namespace))
    pools = [await retried(partial(client.get, PoolResource, pool.metadata.name)) for pool in example.pools]
    plans = [read_plan(raw) for raw in await client.list(PlanResource, namespace)]
    return Observation(
        session=InferenceSession.model_validate(session),
        pools=tuple(GPUPool.model_validate(pool) for pool in pools),
        plans=tuple(plan for plan in plans if plan is not None and plan.spec.session.name == name),
    )


async def _put_definition(client: KubernetesClient, document: dict[str, Any]) -> None:
    """Create or replace. Servers before 1.25 drop CEL rules then, where they would refuse to apply them."""
    try:
        found = await retried(partial(client.get, DefinitionResource, document["metadata"]["name"]))
    except ApiError as error:
        if not is_missing(error):
            raise
        await retried(partial(client.create, DefinitionResource, document))
        return
    current = {**document["metadata"], "resourceVersion": found["metadata"]["resourceVersion"]}
    await retried(partial(client.replace, DefinitionResource, {**document, "metadata": current}))


async def _apply(client: KubernetesClient, resource: Any, wanted: GPUPool | InferenceSession) -> None:
    metadata: dict[str, Any] = {"name": wanted.metadata.name, "labels": wanted.metadata.labels}
    if wanted.metadata.namespace is not None:
        metadata["namespace"] = wanted.metadata.namespace
    # Only what the manifest says, so that defaults stay the API server's.
    spec = wanted.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    try:
        await retried(partial(client.apply, resource, {"metadata": metadata, "spec": spec}, force=True))
    except ApiError as error:
        raise DemoError(
            f"the API server refuses {wanted.kind} {wanted.metadata.name}: {error.message}; correct the manifest"
        ) from error


def _established(definition: Document) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
