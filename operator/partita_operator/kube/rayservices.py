"""KubeRay's custom resources, as far as Partita reads and writes them."""

from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import httpx2
from lightkube import AsyncClient
from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import CascadeType, PatchType

from partita_operator.kube.resources import ALL_NAMESPACES
from partita_operator.kube.retries import retried
from partita_operator.ports import EngineUnavailableError

RayServiceResource: Final = create_namespaced_resource("ray.io", "v1", "RayService", "rayservices")
RayClusterResource: Final = create_namespaced_resource("ray.io", "v1", "RayCluster", "rayclusters")

Document = Mapping[str, Any]


class RayServices:
    """RayServices, and the RayClusters that KubeRay makes for them.

    All calls raise EngineUnavailableError if the API server refuses them, and ApiServerUnavailableError if it is away.
    """

    def __init__(self, client: AsyncClient, namespaces: Collection[str] = ()) -> None:
        """Of all namespaces, unless some are given."""
        self._client = client
        self._namespaces = tuple(namespaces) or (ALL_NAMESPACES,)

    async def get(self, namespace: str, name: str) -> Document | None:
        """A RayService; None if there is none, or no KubeRay."""
        return await self._get(RayServiceResource, namespace, name)

    async def labelled(self, labels: Mapping[str, str]) -> list[Document]:
        """The RayServices that have these labels; none where there is no KubeRay."""

        async def listed() -> list[Document]:
            return [
                raw
                for namespace in self._namespaces
                async for raw in self._client.list(RayServiceResource, namespace=namespace, labels=dict(labels))
            ]

        try:
            return await retried(listed)
        except httpx2.HTTPStatusError as error:
            if _is_missing(error):
                return []
            raise _refused("list RayServices", error) from error

    async def apply(self, manifest: Document) -> Document:
        """Make a RayService as the manifest says, and give it as it is then."""
        resource = RayServiceResource.from_dict(dict(manifest))
        meta = manifest["metadata"]
        try:
            applied: Document = await retried(lambda: self._client.apply(resource, force=True))
        except httpx2.HTTPStatusError as error:
            raise _refused(f"apply RayService {meta['namespace']}/{meta['name']}", error) from error
        return applied

    async def delete(self, namespace: str, name: str) -> None:
        """Delete a RayService, and with it its Ray clusters."""
        try:
            await retried(
                lambda: self._client.delete(
                    RayServiceResource, name, namespace=namespace, cascade=CascadeType.BACKGROUND
                )
            )
        except httpx2.HTTPStatusError as error:
            if not _is_missing(error):
                raise _refused(f"delete RayService {namespace}/{name}", error) from error

    async def cluster(self, namespace: str, name: str) -> Document | None:
        """A RayCluster, or None."""
        return await self._get(RayClusterResource, namespace, name)

    async def patch_cluster(self, namespace: str, name: str, operations: Sequence[Mapping[str, Any]]) -> None:
        """Carry out JSON patch operations on a RayCluster, all or none; one that is gone is no error."""
        try:
            await retried(
                lambda: self._client.patch(
                    RayClusterResource,
                    name,
                    [dict(operation) for operation in operations],
                    namespace=namespace,
                    patch_type=PatchType.JSON,
                )
            )
        except httpx2.HTTPStatusError as error:
            if not _is_missing(error):
                raise _refused(f"scale RayCluster {namespace}/{name}", error) from error

    async def _get(self, resource: Any, namespace: str, name: str) -> Document | None:
        try:
            found: Document = await retried(lambda: self._client.get(resource, name, namespace=namespace))
        except httpx2.HTTPStatusError as error:
            if _is_missing(error):
                return None
            raise _refused(f"read {name} in {namespace}", error) from error
        return found


def _is_missing(error: httpx2.HTTPStatusError) -> bool:
    """Whether there is no such object, namespace or kind; that of a kind is no ApiError, for it is plain text."""
    return error.response.status_code == HTTPStatus.NOT_FOUND


def _refused(what: str, error: httpx2.HTTPStatusError) -> EngineUnavailableError:
    if _is_missing(error):
        return EngineUnavailableError(
            f"The cluster does not know RayServices ({error}). Install KubeRay 1.4 or newer, or use engine.type Ray."
        )
    return EngineUnavailableError(
        f"The API server does not let Partita {what}: {error}. See the operator's ClusterRole (kuberay.image of the "
        "chart adds its rights)."
    )
