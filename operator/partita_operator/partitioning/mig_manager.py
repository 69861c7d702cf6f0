"""NVIDIA's mig-manager: configurations in a ConfigMap, and labels of nodes that name one of them.

Each server-side apply writes all labels of Partita. Labels that it leaves out are removed; labels that somebody else
has changed are a conflict.
"""

from collections.abc import Mapping
from typing import Any, Final

from lightkube import ApiError, AsyncClient
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.operators import exists
from lightkube.resources.core_v1 import ConfigMap, Node, Pod

from partita_api.meta import FIELD_MANAGER, POOL_LABEL
from partita_operator.kube.retries import is_missing, retried
from partita_operator.partitioning.settings import MigSettings
from partita_operator.ports import NodeStep, PartitionerError, StepKind
from partita_operator.reconcile.pool.gpu_labels import CUT_AS, CUT_BY, DRAINING, MIG_CONFIG
from partita_planner.mig.errors import BadConfigurationError
from partita_planner.mig.parted import Entries, parse, render

CONFIG_KEY: Final = "config.yaml"
"""The key that mig-manager reads."""
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_SERVES: Final = {"app.kubernetes.io/component": "worker"}
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_CONFLICT: Final = 409


class MigManager:
    """GpuPartitioner through mig-manager."""

    def __init__(self, client: AsyncClient, settings: MigSettings) -> None:
        self._client = client
        self._settings = settings

    async def published(self) -> Mapping[str, Entries]:
        """The configurations in the ConfigMap; none if it does not exist yet."""
        where = f"ConfigMap {self._settings.config_map} in namespace {self._settings.namespace}"
        try:
            found = await retried(
                lambda: self._client.get(ConfigMap, self._settings.config_map, namespace=self._settings.namespace)
            )
        except ApiError as error:
            if is_missing(error):
                return {}
            raise PartitionerError(f"{where} cannot be read: {error.status.message}.") from error
        if ((found.metadata.labels if found.metadata else None) or {}).get(MANAGED_BY) != FIELD_MANAGER:
            raise PartitionerError(
                f"{where} does not belong to Partita. Name another one in the chart's mig.configMap, and in "
                "migManager.config.name of the GPU Operator."
            )
        try:
            return parse((found.data or {}).get(CONFIG_KEY, ""))
        except BadConfigurationError:
            return {}  # somebody has edited it; the next `publish` overwrites it

    async def publish(self, configurations: Mapping[str, Entries]) -> None:
        """Write the ConfigMap."""
        config_map = ConfigMap(
            metadata=ObjectMeta(
                name=self._settings.config_map,
                namespace=self._settings.namespace,
                labels={MANAGED_BY: FIELD_MANAGER},
            ),
            data={CONFIG_KEY: render(configurations)},
        )
        try:
            await retried(lambda: self._client.apply(config_map, force=True))
        except ApiError as error:
            raise PartitionerError(
                f"ConfigMap {self._settings.config_map} in namespace {self._settings.namespace} cannot be written: "
                f"{error.status.message}."
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
        node = Node(metadata=ObjectMeta(name=step.node, uid=step.uid, labels=labels_after(step)))

        async def apply() -> str:
            try:
                await self._client.apply(node, force=first)
            except ApiError as error:
                if error.status.code == _CONFLICT:
                    return error.status.message or "conflict"
                raise
            return ""

        try:
            conflict = await retried(apply)
        except ApiError as error:
            raise PartitionerError(f"Node {step.node} cannot be labelled: {error.status.message}.") from error
        if conflict:
            raise PartitionerError(
                f"Node {step.node} was not changed, because somebody else has changed its labels: {conflict}."
            )

    async def _pods(self, node: str, labels: Mapping[str, str] | None = None) -> list[Pod]:
        selected: dict[str, Any] = {POOL_LABEL: exists(), **(labels or {})}
        on_node: dict[str, Any] = {"spec.nodeName": node}

        async def listed() -> list[Pod]:
            return [pod async for pod in self._client.list(Pod, namespace="*", labels=selected, fields=on_node)]

        pods = await retried(listed)
        return [pod for pod in pods if pod.status is None or pod.status.phase not in _ENDED]

    async def _delete(self, pod: Pod) -> None:
        assert pod.metadata is not None
        assert pod.metadata.name is not None
        name, namespace = pod.metadata.name, pod.metadata.namespace
        try:
            await retried(lambda: self._client.delete(Pod, name, namespace=namespace))
        except ApiError as error:
            if not is_missing(error):
                raise PartitionerError(f"Pod {namespace}/{name} cannot be evicted: {error.status.message}.") from error


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
