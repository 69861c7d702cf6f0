"""NVIDIA's mig-manager: configurations in a ConfigMap, and labels of nodes that name one of them.

Each server-side apply writes all labels of Partita. Labels that it leaves out are removed; labels that another client
has changed are a conflict.
"""

from collections.abc import Mapping
from typing import Final

from partita_api.meta import FIELD_MANAGER, POOL_LABEL
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.errors import ApiError, is_conflict, is_missing
from partita_operator.kube.resources import ConfigMapResource, NodeResource, PodResource, equal, exists
from partita_operator.kube.retries import retried
from partita_operator.ports import NodeStep, PartitionerError, StepKind
from partita_operator.reconcile.pool.gpu_labels import CUT_AS, CUT_BY, DRAINING, MIG_CONFIG
from partita_operator.settings.mig import MigSettings
from partita_planner.mig.errors import BadConfigurationError
from partita_planner.mig.mig_parted import Entries, parse, render

CONFIG_KEY: Final = "config.yaml"
"""The key that mig-manager reads."""
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_SERVES: Final = {"app.kubernetes.io/component": "worker"}
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class MigManager:
    """GpuPartitioner through mig-manager."""

    def __init__(self, client: KubernetesClient, settings: MigSettings) -> None:
        self._client = client
        self._settings = settings

    async def published(self) -> Mapping[str, Entries]:
        """The configurations in the ConfigMap; none if it does not exist yet."""
        where = f"ConfigMap {self._settings.config_map} in namespace {self._settings.namespace}"
        try:
            found = await retried(
                lambda: self._client.get(ConfigMapResource, self._settings.config_map, self._settings.namespace)
            )
        except ApiError as error:
            if is_missing(error):
                return {}
            raise PartitionerError(f"{where} cannot be read: {error.message}.") from error
        if (found["metadata"].get("labels") or {}).get(MANAGED_BY) != FIELD_MANAGER:
            raise PartitionerError(
                f"{where} does not belong to Partita. Name another one in the chart's mig.configMap, and in "
                "migManager.config.name of the GPU Operator."
            )
        try:
            return parse((found.get("data") or {}).get(CONFIG_KEY, ""))
        except BadConfigurationError:
            return {}  # edited by hand; the next `publish` overwrites it

    async def publish(self, configurations: Mapping[str, Entries]) -> None:
        """Write the ConfigMap."""
        config_map = {
            "metadata": {
                "name": self._settings.config_map,
                "namespace": self._settings.namespace,
                "labels": {MANAGED_BY: FIELD_MANAGER},
            },
            "data": {CONFIG_KEY: render(configurations)},
        }
        try:
            await retried(lambda: self._client.apply(ConfigMapResource, config_map, force=True))
        except ApiError as error:
            raise PartitionerError(
                f"ConfigMap {self._settings.config_map} in namespace {self._settings.namespace} cannot be written: "
                f"{error.message}."
            ) from error

    async def replicas(self, node: str) -> int:
        """Number of pods with accelerators on the node that have not ended."""
        return len(await self._pods(node))

    async def take(self, step: NodeStep) -> None:
        """Label the node, or delete its pods that serve; profiling runs end by themselves."""
        if step.kind is StepKind.EVICT:
            for pod in await self._pods(step.node, _SERVES):
                await self._delete(pod)
            return
        # The first configuration takes the label over from its present owner, such as the GPU Operator.
        first = step.kind is StepKind.CUT and not step.present
        node = {"metadata": {"name": step.node, "uid": step.uid, "labels": labels_after(step)}}

        async def apply() -> str:
            try:
                await self._client.apply(NodeResource, node, force=first)
            except ApiError as error:
                if is_conflict(error):
                    return error.message
                raise
            return ""

        try:
            conflict = await retried(apply)
        except ApiError as error:
            raise PartitionerError(f"Node {step.node} cannot be labelled: {error.message}.") from error
        if conflict:
            raise PartitionerError(
                f"Node {step.node} was not changed, because another client has changed its labels: {conflict}."
            )

    async def _pods(self, node: str, labels: Mapping[str, str] | None = None) -> list[Document]:
        selector = ",".join(filter(None, [exists(POOL_LABEL), equal(labels or {})]))
        on_node = equal({"spec.nodeName": node})
        pods = await retried(lambda: self._client.list(PodResource, labels=selector, fields=on_node))
        return [pod for pod in pods if (pod.get("status") or {}).get("phase") not in _ENDED]

    async def _delete(self, pod: Document) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        try:
            await retried(lambda: self._client.delete(PodResource, name, namespace))
        except ApiError as error:
            if not is_missing(error):
                raise PartitionerError(f"Pod {namespace}/{name} cannot be evicted: {error.message}.") from error


def labels_after(step: NodeStep) -> dict[str, str]:
    """All labels of Partita on the node after the step."""
    before = {CUT_AS: step.present, MIG_CONFIG: step.present} if step.present else {}
    match step.kind:
        case StepKind.DRAIN:
            return {**before, CUT_BY: step.pool, DRAINING: step.config}
        case StepKind.CUT:
            return {CUT_BY: step.pool, DRAINING: step.config, CUT_AS: step.config, MIG_CONFIG: step.config}
        case StepKind.FINISH:
            return {CUT_BY: step.pool, CUT_AS: step.config, MIG_CONFIG: step.config}
        case _:
            return {CUT_BY: step.pool, **before} if before else {}
