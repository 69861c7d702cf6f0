"""Applies pools and sessions, and reads them back."""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_devtools.errors import DevError
from partita_devtools.sessions.snapshot import SessionSnapshot
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

FIELD_MANAGER: Final = "partita-devtools"


def manifest_client(connection: Connection) -> KubernetesClient:
    """A client whose field manager is the author of manifests, not the operator."""
    return KubernetesClient(connection, FIELD_MANAGER)


async def apply_manifests(
    client: KubernetesClient, pools: Iterable[GPUPool], sessions: Iterable[InferenceSession]
) -> None:
    """Apply the pools, then the sessions. Raises DevError with the API server's message if it refuses one."""
    for pool in pools:
        await _apply(client, PoolResource, pool)
    for session in sessions:
        await _apply(client, SessionResource, session)


async def observe(client: KubernetesClient, session: InferenceSession, pools: Iterable[GPUPool]) -> SessionSnapshot:
    """These objects as they are now."""
    namespace, name = session.metadata.namespace or "", session.metadata.name
    found = await retried(partial(client.get, SessionResource, name, namespace))
    found_pools = [await retried(partial(client.get, PoolResource, pool.metadata.name)) for pool in pools]
    plans = [read_plan(raw) for raw in await retried(partial(client.list, PlanResource, namespace))]
    return SessionSnapshot(
        session=InferenceSession.model_validate(found),
        pools=tuple(GPUPool.model_validate(pool) for pool in found_pools),
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
        raise DevError(
            f"the API server refuses {manifest.kind} {manifest.metadata.name}: {error.message}. Correct the manifest"
        ) from error
