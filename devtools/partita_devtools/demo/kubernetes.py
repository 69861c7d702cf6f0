"""Applies the manifests of a demonstration, and reads the objects back."""

from functools import partial
from typing import Any, Final

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_devtools.demo.conditions import ExampleSnapshot
from partita_devtools.demo.errors import DemoError
from partita_devtools.demo.example import Example
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import Connection
from partita_operator.kube.errors import ApiError
from partita_operator.kube.resources import (
    PlanResource,
    PoolResource,
    SessionResource,
    read_plan,
)
from partita_operator.kube.retries import retried

FIELD_MANAGER: Final = "partita-demo"


def demo_client(connection: Connection) -> KubernetesClient:
    """A client whose field manager is the demonstration, not the operator."""
    return KubernetesClient(connection, FIELD_MANAGER)


async def apply_example(client: KubernetesClient, example: Example) -> None:
    """Apply the pools and the session. Raises DemoError with the API server's message if it refuses one."""
    for pool in example.pools:
        await _apply(client, PoolResource, pool)
    await _apply(client, SessionResource, example.session)


async def observe(client: KubernetesClient, example: Example) -> ExampleSnapshot:
    """The example's objects as they are now."""
    namespace, name = example.session.metadata.namespace or "", example.session.metadata.name
    session = await retried(partial(client.get, SessionResource, name, namespace))
    pools = [await retried(partial(client.get, PoolResource, pool.metadata.name)) for pool in example.pools]
    plans = [read_plan(raw) for raw in await client.list(PlanResource, namespace)]
    return ExampleSnapshot(
        session=InferenceSession.model_validate(session),
        pools=tuple(GPUPool.model_validate(pool) for pool in pools),
        plans=tuple(plan for plan in plans if plan is not None and plan.spec.session.name == name),
    )


async def _apply(client: KubernetesClient, resource: Any, manifest: GPUPool | InferenceSession) -> None:
    metadata: dict[str, Any] = {"name": manifest.metadata.name, "labels": manifest.metadata.labels}
    if manifest.metadata.namespace is not None:
        metadata["namespace"] = manifest.metadata.namespace
    # Only the fields of the manifest, so that the API server sets the defaults.
    spec = manifest.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    try:
        await retried(partial(client.apply, resource, {"metadata": metadata, "spec": spec}, force=True))
    except ApiError as error:
        raise DemoError(
            f"the API server refuses {manifest.kind} {manifest.metadata.name}: {error.message}. Correct the manifest"
        ) from error
