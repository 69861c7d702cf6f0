"""Partita's writes: to its own kinds (finalizers, statuses, plans), and to objects that these or a RayService own."""

from collections.abc import Mapping
from typing import Any, Final

from kubernetes.aio.dynamic import Resource

from partita_api.gpupool import GPUPool, GPUPoolStatus
from partita_api.inferencesession import InferenceSession, InferenceSessionStatus
from partita_api.meta import API_VERSION, FINALIZER
from partita_api.pipelineplan import PipelinePlan, PipelinePlanStatus
from partita_operator.kube.cache import ClusterCache, Kind, key_of
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.errors import ApiError, NameTakenError, is_conflict, is_missing
from partita_operator.kube.resources import PlanResource, PoolResource, SessionResource, document
from partita_operator.kube.retries import retried
from partita_operator.reconcile.actions import DeleteObject

Owner = GPUPool | InferenceSession | PipelinePlan
Status = GPUPoolStatus | InferenceSessionStatus | PipelinePlanStatus

_RESOURCES: Final[dict[type[Owner], Any]] = {
    GPUPool: PoolResource,
    InferenceSession: SessionResource,
    PipelinePlan: PlanResource,
}


class ObjectWriter:
    """Writes to the API server and to the cache. All calls are idempotent. A deleted object is not an error."""

    def __init__(self, client: KubernetesClient, cache: ClusterCache) -> None:
        self._client = client
        self._cache = cache

    async def write_status(self, owner: Owner, status: Status) -> None:
        """Apply the whole status: a field that it lacks is removed."""
        manifest = {"metadata": _identity(owner), "status": document(status)}
        try:
            raw = await retried(lambda: self._client.apply_status(_RESOURCES[type(owner)], manifest))
        except ApiError as error:
            if not is_missing(error):
                raise
        else:
            self._cache.put(Kind(owner.kind), raw)

    async def add_finalizer(self, owner: Owner) -> None:
        """Keep the object until Partita has cleaned up what belongs to it."""
        await self._set_finalizer(owner, present=True)

    async def remove_finalizer(self, owner: Owner) -> None:
        """Remove Partita's finalizer, which prevents the deletion of the object."""
        await self._set_finalizer(owner, present=False)

    async def create_plan(self, plan: PipelinePlan, session: InferenceSession) -> None:
        """Apply a plan, owned by its session."""
        meta = plan.metadata
        owner = {
            "apiVersion": API_VERSION,
            "kind": session.kind,
            "name": session.metadata.name,
            "uid": session.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        manifest = {
            "metadata": {
                "name": meta.name,
                "namespace": meta.namespace,
                "labels": dict(meta.labels),
                "annotations": dict(meta.annotations),
                "ownerReferences": [owner],
            },
            "spec": document(plan.spec),
        }
        raw = await retried(lambda: self._client.apply(PlanResource, manifest, force=True))
        self._cache.put(Kind.PLAN, raw)

    async def approve_plan(self, namespace: str, name: str) -> None:
        """Set spec.approved."""
        await self._change_plan(namespace, name, {"spec": {"approved": True}})

    async def annotate_plan(self, namespace: str, name: str, annotations: Mapping[str, str]) -> None:
        """Set annotations of a plan."""
        await self._change_plan(namespace, name, {"metadata": {"annotations": dict(annotations)}})

    async def delete_plan(self, namespace: str, name: str) -> None:
        """Delete a plan."""
        try:
            await retried(lambda: self._client.delete(PlanResource, name, namespace))
        except ApiError as error:
            if not is_missing(error):
                raise
        self._cache.forget((Kind.PLAN, f"{namespace}/{name}"))

    async def _change_plan(self, namespace: str, name: str, patch: dict[str, Any]) -> None:
        try:
            raw = await retried(lambda: self._client.patch(PlanResource, name, patch, namespace))
        except ApiError as error:
            if not is_missing(error):
                raise
        else:
            self._cache.put(Kind.PLAN, raw)

    async def _set_finalizer(self, owner: Owner, *, present: bool) -> None:
        """Change the list of finalizers, which also has those of other controllers: the one known, else the present."""
        resource, name, namespace = _RESOURCES[type(owner)], owner.metadata.name, owner.metadata.namespace or ""
        known = self._cache.last_seen(key_of(Kind(owner.kind), {"metadata": _identity(owner)}))

        async def change() -> None:
            nonlocal known
            raw, known = known or await self._client.get(resource, name, namespace), None
            meta = raw["metadata"]
            before = meta.get("finalizers") or []
            after = [f for f in before if f != FINALIZER] + ([FINALIZER] if present else [])
            if after == before or meta.get("uid") != owner.metadata.uid:
                return
            patch = {"metadata": {"finalizers": after, "resourceVersion": meta["resourceVersion"]}}
            self._cache.put(Kind(owner.kind), await self._client.patch(resource, name, patch, namespace))

        try:
            await retried(change)
        except ApiError as error:
            if not is_missing(error):
                raise


def _identity(owner: Owner) -> dict[str, Any]:
    """Name and uid: a status is never written to another object of the same name."""
    namespace = {"namespace": owner.metadata.namespace} if owner.metadata.namespace else {}
    return {"name": owner.metadata.name, **namespace, "uid": owner.metadata.uid}


async def apply_owned(
    client: KubernetesClient, kind: Resource, manifest: Mapping[str, Any], known: Document | None = None
) -> Document:
    """Create the object, or change it if it has the manifest's owner. `known` is the object as it was read last.

    Raises NameTakenError if an object of somebody else has the name, ApiError and ApiServerUnavailableError.
    """
    meta = manifest["metadata"]
    name, namespace, owner = meta["name"], meta["namespace"], meta["ownerReferences"][0]

    async def write() -> Document:
        nonlocal known
        present, known = known, None  # after a conflict, the next attempt reads it
        if present is None:
            present = await read(client, kind, namespace, name)
        if present is None:
            return await client.apply_new(kind, manifest)
        if not owned_by(present, owner["uid"]):
            raise NameTakenError(
                f"{kind.kind} {namespace}/{name} exists and does not belong to {owner['kind']} {owner['name']}, so "
                "Partita leaves it as it is. Rename or delete it."
            )
        # With the uid, the API server refuses the write if another object has the name now.
        return await client.apply(
            kind, {**manifest, "metadata": {**meta, "uid": present["metadata"]["uid"]}}, force=True
        )

    return await retried(write)


async def delete_owned(client: KubernetesClient, kind: Resource, which: DeleteObject, namespace: str) -> None:
    """Delete the object, unless it is gone or another one has its name now.

    Raises ApiError and ApiServerUnavailableError.
    """

    async def remove() -> None:
        try:
            await client.delete(kind, which.name, namespace, uid=which.uid)
        except ApiError as error:
            if not is_missing(error) and not is_conflict(error):
                raise

    await retried(remove)


async def read(client: KubernetesClient, kind: Resource, namespace: str, name: str) -> Document | None:
    """The object; None if it does not exist. Raises KubernetesError."""
    try:
        return await client.get(kind, name, namespace)
    except ApiError as error:
        if not is_missing(error):
            raise
        return None


def owned_by(raw: Mapping[str, Any], uid: str) -> bool:
    """Whether the object's controller is the object with this uid."""
    owners = raw["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == uid and owner.get("controller") for owner in owners)
