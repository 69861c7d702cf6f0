"""What Partita writes to its own objects: finalizers, status, plans."""

from collections.abc import Mapping
from typing import Any, Final

from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType

from partita_api.gpupool import GPUPool, GPUPoolStatus
from partita_api.inferencesession import InferenceSession, InferenceSessionStatus
from partita_api.meta import API_VERSION, FINALIZER
from partita_api.pipelineplan import PipelinePlan, PipelinePlanStatus
from partita_operator.kube.cache import ClusterCache, Kind
from partita_operator.kube.resources import PlanResource, PoolResource, SessionResource, document
from partita_operator.kube.retries import is_missing, retried

Owner = GPUPool | InferenceSession | PipelinePlan
Status = GPUPoolStatus | InferenceSessionStatus | PipelinePlanStatus

_RESOURCES: Final[dict[type[Owner], Any]] = {
    GPUPool: PoolResource,
    InferenceSession: SessionResource,
    PipelinePlan: PlanResource,
}


class ObjectWriter:
    """Writes to the API server and to the cache. All calls are idempotent; objects that are gone are no error."""

    def __init__(self, client: AsyncClient, cache: ClusterCache) -> None:
        self._client = client
        self._cache = cache

    async def write_status(self, owner: Owner, status: Status) -> None:
        """Apply the status, all of it: what is not in it is removed."""
        body = {"metadata": _identity(owner), "status": document(status)}
        applied = _RESOURCES[type(owner)].Status(apiVersion=API_VERSION, kind=owner.kind, **body)
        where = _namespace(owner)
        try:
            raw = await retried(lambda: self._client.apply(applied, owner.metadata.name, **where, force=True))
        except ApiError as error:
            if not is_missing(error):
                raise
        else:
            self._cache.put(Kind(owner.kind), raw)

    async def add_finalizer(self, owner: Owner) -> None:
        """Keep the object from going before Partita is done with it."""
        await self._set_finalizer(owner, present=True)

    async def remove_finalizer(self, owner: Owner) -> None:
        """Let the object go as far as Partita is concerned."""
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
        applied = PlanResource.from_dict(
            {
                "apiVersion": API_VERSION,
                "kind": plan.kind,
                "metadata": {
                    "name": meta.name,
                    "namespace": meta.namespace,
                    "labels": dict(meta.labels),
                    "annotations": dict(meta.annotations),
                    "ownerReferences": [owner],
                },
                "spec": document(plan.spec),
            }
        )
        raw = await retried(lambda: self._client.apply(applied, force=True))
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
            await retried(lambda: self._client.delete(PlanResource, name, namespace=namespace))
        except ApiError as error:
            if not is_missing(error):
                raise
        self._cache.forget((Kind.PLAN, f"{namespace}/{name}"))

    async def _change_plan(self, namespace: str, name: str, patch: dict[str, Any]) -> None:
        try:
            raw = await retried(
                lambda: self._client.patch(PlanResource, name, patch, namespace=namespace, patch_type=PatchType.MERGE)
            )
        except ApiError as error:
            if not is_missing(error):
                raise
        else:
            self._cache.put(Kind.PLAN, raw)

    async def _set_finalizer(self, owner: Owner, *, present: bool) -> None:
        """Change the list of finalizers as it is now; other controllers have theirs in it."""
        resource, where = _RESOURCES[type(owner)], _namespace(owner)

        async def change() -> None:
            raw = await self._client.get(resource, owner.metadata.name, **where)
            meta = raw["metadata"]
            before = meta.get("finalizers") or []
            after = [f for f in before if f != FINALIZER] + ([FINALIZER] if present else [])
            if after == before or meta.get("uid") != owner.metadata.uid:
                return
            patch = {"metadata": {"finalizers": after, "resourceVersion": meta["resourceVersion"]}}
            changed = await self._client.patch(
                resource, owner.metadata.name, patch, **where, patch_type=PatchType.MERGE
            )
            self._cache.put(Kind(owner.kind), changed)

        try:
            await retried(change)
        except ApiError as error:
            if not is_missing(error):
                raise


def _identity(owner: Owner) -> dict[str, Any]:
    """Name and uid: a status is never written to another object of the same name."""
    return {"name": owner.metadata.name, **_namespace(owner), "uid": owner.metadata.uid}


def _namespace(owner: Owner) -> dict[str, Any]:
    return {"namespace": owner.metadata.namespace} if owner.metadata.namespace else {}
