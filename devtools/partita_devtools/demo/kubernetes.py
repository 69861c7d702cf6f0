"""The demonstration's side of the Kubernetes API: apply what a person would, and look at what comes of it."""

import asyncio
import time
from functools import partial
from typing import Any, Final

from lightkube import ApiError, AsyncClient
from lightkube.config.kubeconfig import SingleConfig
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition

from partita_api.crd_schema import KINDS, crd
from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_devtools.demo.conditions import Observation
from partita_devtools.demo.errors import DemoError
from partita_devtools.demo.example import Example
from partita_operator.kube.resources import (
    PlanResource,
    PoolResource,
    SessionResource,
    read_plan,
)
from partita_operator.kube.retries import is_missing, retried

FIELD_MANAGER: Final = "partita-demo"
_ESTABLISHED_TIMEOUT_S: Final = 30.0


def demo_client(config: SingleConfig) -> AsyncClient:
    """A client that writes as the demonstration, not as the operator."""
    return AsyncClient(config=config, field_manager=FIELD_MANAGER)


async def apply_crds(client: AsyncClient) -> None:
    """Apply Partita's CRDs and wait until they are served. Raises DemoError if they are not."""
    for kind in KINDS:
        await _put_definition(client, crd(kind))
    deadline = time.monotonic() + _ESTABLISHED_TIMEOUT_S
    for name in (crd(kind)["metadata"]["name"] for kind in KINDS):
        while not _established(await retried(partial(client.get, CustomResourceDefinition, name))):
            if time.monotonic() > deadline:
                raise DemoError(f"the CRD {name} is not served; see why: kubectl describe crd {name}")
            await asyncio.sleep(0.1)


async def apply_example(client: AsyncClient, example: Example) -> None:
    """Apply the pools and the session. Raises DemoError with the API server's message if it refuses one."""
    for pool in example.pools:
        await _apply(client, PoolResource, pool)
    await _apply(client, SessionResource, example.session)


async def observe(client: AsyncClient, example: Example) -> Observation:
    """The example's objects as they are now."""
    namespace, name = example.session.metadata.namespace, example.session.metadata.name
    session = await retried(partial(client.get, SessionResource, name, namespace=namespace))
    pools = [await retried(partial(client.get, PoolResource, pool.metadata.name)) for pool in example.pools]
    plans = [read_plan(raw) async for raw in client.list(PlanResource, namespace=namespace)]
    return Observation(
        session=InferenceSession.model_validate(session),
        pools=tuple(GPUPool.model_validate(pool) for pool in pools),
        plans=tuple(plan for plan in plans if plan is not None and plan.spec.session.name == name),
    )


async def _put_definition(client: AsyncClient, document: dict[str, Any]) -> None:
    """Create or replace. Servers before 1.25 drop CEL rules then, where they would refuse to apply them."""
    try:
        found: Any = await retried(partial(client.get, CustomResourceDefinition, document["metadata"]["name"]))
    except ApiError as error:
        if not is_missing(error):
            raise
        await retried(partial(client.create, CustomResourceDefinition.from_dict(document)))
        return
    current = {**document["metadata"], "resourceVersion": found.metadata.resourceVersion}
    await retried(partial(client.replace, CustomResourceDefinition.from_dict({**document, "metadata": current})))


async def _apply(client: AsyncClient, resource: Any, wanted: GPUPool | InferenceSession) -> None:
    metadata = {"name": wanted.metadata.name, "labels": wanted.metadata.labels}
    if wanted.metadata.namespace is not None:
        metadata["namespace"] = wanted.metadata.namespace
    # Only what the manifest says, so that defaults stay the API server's.
    spec = wanted.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    written = resource(apiVersion=wanted.api_version, kind=wanted.kind, metadata=metadata, spec=spec)
    try:
        await retried(partial(client.apply, written, force=True))
    except ApiError as error:
        raise DemoError(
            f"the API server refuses {wanted.kind} {wanted.metadata.name}: {error.status.message}; correct the manifest"
        ) from error


def _established(definition: CustomResourceDefinition) -> bool:
    conditions = (definition.status.conditions if definition.status else None) or ()
    return any(c.type == "Established" and c.status == "True" for c in conditions)
