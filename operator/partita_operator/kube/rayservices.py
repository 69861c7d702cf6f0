"""KubeRay's custom resources, as far as Partita reads and writes them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from kubernetes.aio.dynamic import Resource

from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.errors import ApiError, is_failed_test, is_missing, refusal, unknown_field
from partita_operator.kube.resources import ALL_NAMESPACES, PodResource, RayClusterResource, RayServiceResource, equal
from partita_operator.kube.retries import retried
from partita_operator.ports import EngineUnavailableError

Document = Mapping[str, Any]
CLUSTER_LABEL: Final = "ray.io/cluster"
"""KubeRay's label on pods: the name of their RayCluster."""
GROUP_LABEL: Final = "ray.io/group"
"""KubeRay's label on pods: the name of their worker group."""
OLDEST_KUBERAY: Final = "1.6"
"""KubeRay has `authOptions.secretName` since then."""


class RayServices:
    """RayServices, and the RayClusters that KubeRay creates for them.

    All calls raise EngineUnavailableError if the API server refuses, and ApiServerUnavailableError if it is away.
    """

    def __init__(self, client: KubernetesClient, namespaces: Collection[str] = ()) -> None:
        """All namespaces by default."""
        self._client = client
        self._namespaces = tuple(namespaces) or (ALL_NAMESPACES,)

    async def get(self, namespace: str, name: str) -> Document | None:
        """A RayService; None if it does not exist, or KubeRay is not installed."""
        return await self._get(RayServiceResource, namespace, name)

    async def labelled(self, labels: Mapping[str, str]) -> list[Document]:
        """The RayServices that have these labels; an empty list if KubeRay is not installed."""
        return await self._list(RayServiceResource, labels)

    async def clusters(self, labels: Mapping[str, str], namespace: str | None = None) -> list[Document]:
        """The RayClusters that have these labels, also those that are being deleted, in all namespaces or in one.

        An empty list if KubeRay is not installed.
        """
        return await self._list(RayClusterResource, labels, namespace)

    async def apply(self, manifest: Document) -> Document:
        """Apply a RayService and return it as stored."""
        meta = manifest["metadata"]
        try:
            return await retried(lambda: self._client.apply(RayServiceResource, manifest, force=True))
        except ApiError as error:
            raise _refused(f"apply RayService {meta['namespace']}/{meta['name']}", error) from error

    async def delete(self, namespace: str, name: str) -> None:
        """Delete a RayService and its Ray clusters."""
        try:
            await retried(lambda: self._client.delete(RayServiceResource, name, namespace, propagation="Background"))
        except ApiError as error:
            if not is_missing(error):
                raise _refused(f"delete RayService {namespace}/{name}", error) from error

    async def cluster(self, namespace: str, name: str) -> Document | None:
        """A RayCluster, or None."""
        return await self._get(RayClusterResource, namespace, name)

    async def pods(self, namespace: str, cluster: str) -> list[Document]:
        """The pods of a RayCluster."""
        labels = equal({CLUSTER_LABEL: cluster})
        try:
            return list(await retried(lambda: self._client.list(PodResource, namespace, labels=labels)))
        except ApiError as error:
            raise _refused(f"list the pods of RayCluster {namespace}/{cluster}", error) from error

    async def patch_cluster(self, namespace: str, name: str, operations: Sequence[Mapping[str, Any]]) -> bool:
        """Apply JSON patch operations to a RayCluster, all or none. A deleted cluster is not an error.

        Returns False if an operation `test` does not hold: the cluster is not as it was read.
        """
        try:
            await retried(lambda: self._client.json_patch(RayClusterResource, name, operations, namespace))
        except ApiError as error:
            if is_failed_test(error):
                return False
            if not is_missing(error):
                raise _refused(f"scale RayCluster {namespace}/{name}", error) from error
        return True

    async def _list(
        self, resource: Resource, labels: Mapping[str, str], namespace: str | None = None
    ) -> list[Document]:
        async def listed() -> list[Document]:
            places = self._namespaces if namespace is None else (namespace,)
            return list((await self._client.list_in(resource, places, labels=equal(labels))).objects)

        try:
            return await retried(listed)
        except ApiError as error:
            if is_missing(error):
                return []
            raise _refused("list RayServices and RayClusters", error) from error

    async def _get(self, resource: Resource, namespace: str, name: str) -> Document | None:
        try:
            return await retried(lambda: self._client.get(resource, name, namespace))
        except ApiError as error:
            if is_missing(error):
                return None
            raise _refused(f"read {name} in {namespace}", error) from error


def _refused(what: str, error: ApiError) -> EngineUnavailableError:
    if is_missing(error):
        return EngineUnavailableError(
            f"The cluster has no RayServices ({error}). Install KubeRay {OLDEST_KUBERAY} or newer, or use engine.type "
            "Ray."
        )
    if field := unknown_field(error):
        return EngineUnavailableError(
            f"The cluster's definition of RayServices is of a KubeRay before {OLDEST_KUBERAY}: it has no {field}. "
            "Upgrade KubeRay, and its CustomResourceDefinitions, which Helm leaves as they are."
        )
    remedy = "Set kuberay.image of the chart, which adds the rights to the operator's ClusterRole."
    return EngineUnavailableError(refusal(what, error, remedy))
