"""PodTemplate: what pools and sessions set on the pods of profiling Jobs and of KubeRay's Ray clusters."""

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from partita_api.fields.label_selector import LabelKey, LabelValue
from partita_api.fields.quantity import Quantity
from partita_api.meta import Rule, SpecModel
from partita_api.pod.placement import MAX_TOLERATIONS, Affinity, Toleration, TopologySpreadConstraint
from partita_api.pod.reserved import OWN_LABEL_PREFIXES, OWN_LABELS, is_own_label, one_of
from partita_api.pod.variables import (
    MAX_VARIABLES,
    EnvFromSource,
    EnvVar,
    ObjectName,
)
from partita_api.pod.volumes import MAX_VOLUMES, Volume, VolumeMount

IMAGE_PATTERN: Final = r"^[a-zA-Z0-9][a-zA-Z0-9._:/@+-]*$"
ImageName = Annotated[str, Field(max_length=512, pattern=IMAGE_PATTERN)]

_OWN_KEYS: Final = ", ".join((*(f"{prefix}*" for prefix in OWN_LABEL_PREFIXES), *OWN_LABELS))


def _list_map(*keys: str) -> dict[str, Any]:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def _has_no_own_key(field: str) -> Rule:
    return Rule(
        f"{field} may not contain keys that Partita, Ray or Kubernetes sets ({_OWN_KEYS}); remove them",
        lambda metadata: not any(map(is_own_label, getattr(metadata, field))),
        f"!has(self.{field}) || !self.{field}.exists(k, {one_of('k', OWN_LABELS, OWN_LABEL_PREFIXES)})",
    )


class PodMetadata(SpecModel):
    """Labels and annotations of the pods, and of profiling Jobs."""

    rules: ClassVar[tuple[Rule, ...]] = (_has_no_own_key("labels"), _has_no_own_key("annotations"))

    labels: dict[LabelKey, LabelValue] = Field(
        default={}, max_length=16, description="Labels, such as kueue.x-k8s.io/queue-name."
    )
    annotations: dict[LabelKey, Annotated[str, Field(max_length=1024)]] = Field(
        default={}, max_length=16, description="Annotations."
    )


class ResourceAmounts(SpecModel):
    """Amounts of a container's resources. Accelerators are not among them: Partita requests these itself."""

    cpu: Quantity | None = Field(default=None, description="CPUs, such as 4 or 500m.")
    memory: Quantity | None = Field(default=None, description="Memory, such as 16Gi.")
    ephemeral_storage: Quantity | None = Field(
        default=None, alias="ephemeral-storage", description="Local disk, such as 20Gi."
    )

    def amounts(self) -> dict[str, Quantity]:
        """The amounts that are set, by the resource's name."""
        found = {"cpu": self.cpu, "memory": self.memory, "ephemeral-storage": self.ephemeral_storage}
        return {name: amount for name, amount in found.items() if amount is not None}


def _is_within(resource: str) -> str:
    """The CEL expression that a request is at most its limit."""
    request, limit = f"self.requests.{resource}", f"self.limits.{resource}"
    texts = f"isQuantity(string({request})) && isQuantity(string({limit}))"
    return (
        f"(!has({request}) || !has({limit}) || !({texts}) || "
        f"quantity(string({request})).compareTo(quantity(string({limit}))) <= 0)"
    )


class PodResources(SpecModel):
    """Requests and limits of a pod, besides its accelerator."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a request may not exceed its limit; correct resources.requests or resources.limits",
            lambda resources: all(
                amount.value <= resources.limits.amounts().get(name, amount).value
                for name, amount in resources.requests.amounts().items()
            ),
            "!has(self.requests) || !has(self.limits) || "
            f"({' && '.join(map(_is_within, ('cpu', 'memory', 'ephemeral__dash__storage')))})",
        ),
    )

    requests: ResourceAmounts = Field(default=ResourceAmounts(), description="What the pod reserves.")
    limits: ResourceAmounts = Field(
        default=ResourceAmounts(), description="The most that the pod may use. A limit alone is a request, too."
    )

    @property
    def cpus(self) -> Decimal | None:
        """CPUs that the pod may use: its limit, else its request."""
        found = self.limits.cpu or self.requests.cpu
        return found.value if found is not None else None


class GroupChangePolicy(StrEnum):
    """When Kubernetes changes the group of a volume's files."""

    ON_ROOT_MISMATCH = "OnRootMismatch"
    ALWAYS = "Always"


class PodSecurity(SpecModel):
    """The part of a pod's security context that templates may set: the group of its volumes."""

    fs_group: int | None = Field(
        default=None,
        ge=1,
        le=2**31 - 1,
        description="Group that owns the files of volumes, so that the pod may write to them.",
    )
    fs_group_change_policy: GroupChangePolicy | None = Field(
        default=None,
        description="OnRootMismatch: change the group of files only if the volume's root has another one, which is "
        "faster. Always, or unset: at each start.",
    )


class LocalObjectReference(SpecModel):
    """An object of the session's namespace."""

    name: ObjectName = Field(description="Its name.")


class PodTemplate(SpecModel):
    """What pods have in addition to what Partita needs: a subset of Kubernetes' PodTemplateSpec with one container."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "every volumeMount must name a volume of the same podTemplate",
            lambda template: {m.name for m in template.volume_mounts} <= {v.name for v in template.volumes},
            "!has(self.volumeMounts) || (has(self.volumes) && "
            "self.volumeMounts.all(m, self.volumes.exists(v, v.name == m.name)))",
        ),
        Rule(
            "podTemplate has two entries of one name; keep one of them",
            lambda template: not template.repeated(),
            None,
        ),
    )

    metadata: PodMetadata = Field(default=PodMetadata(), description="Labels and annotations.")
    image: ImageName | None = Field(
        default=None,
        description="Image of the pods, with the versions of Partita and Ray of the chart's images. Default: "
        "kuberay.image and profiling.image of the chart.",
    )
    image_pull_secrets: tuple[LocalObjectReference, ...] = Field(
        default=(),
        max_length=8,
        json_schema_extra=_list_map("name"),
        description="Secrets of the session's namespace that can pull the image.",
    )
    env: tuple[EnvVar, ...] = Field(
        default=(),
        max_length=MAX_VARIABLES,
        json_schema_extra=_list_map("name"),
        description="Environment variables.",
    )
    env_from: tuple[EnvFromSource, ...] = Field(
        default=(), max_length=8, description="Secrets and ConfigMaps whose keys become environment variables."
    )
    volumes: tuple[Volume, ...] = Field(
        default=(),
        max_length=MAX_VOLUMES,
        json_schema_extra=_list_map("name"),
        description="Volumes: configMap, emptyDir, persistentVolumeClaim, projected or secret.",
    )
    volume_mounts: tuple[VolumeMount, ...] = Field(
        default=(),
        max_length=MAX_VOLUMES,
        json_schema_extra=_list_map("mountPath"),
        description="Where the volumes are mounted.",
    )
    resources: PodResources = Field(
        default=PodResources(), description="CPUs, memory and local disk. Partita requests the accelerator itself."
    )
    security_context: PodSecurity = Field(default=PodSecurity(), description="Who owns the files of volumes.")
    service_account_name: ObjectName | None = Field(
        default=None,
        description="ServiceAccount of the pods. Its token is not mounted. Default: the namespace's default account.",
    )
    node_selector: dict[LabelKey, LabelValue] = Field(
        default={}, max_length=16, description="Labels of nodes to run on, in addition to those of the pool."
    )
    affinity: Affinity = Field(default=Affinity(), description="Nodes and pods to run near, or far from.")
    tolerations: tuple[Toleration, ...] = Field(
        default=(), max_length=MAX_TOLERATIONS, description="Taints that the pods tolerate, in addition to the pool's."
    )
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = Field(
        default=(),
        max_length=8,
        json_schema_extra=_list_map("topologyKey", "whenUnsatisfiable"),
        description="How the pods are spread over zones or nodes.",
    )
    priority_class_name: ObjectName | None = Field(default=None, description="PriorityClass of the pods.")
    scheduler_name: ObjectName | None = Field(
        default=None, description="Scheduler of the pods, such as volcano. Default: Kubernetes' own."
    )

    def repeated(self) -> list[str]:
        """Lists that have two entries of one key, such as env."""
        spreads = [(s.topology_key, s.when_unsatisfiable) for s in self.topology_spread_constraints]
        keys: dict[str, list[Any]] = {
            "imagePullSecrets": [secret.name for secret in self.image_pull_secrets],
            "env": [variable.name for variable in self.env],
            "volumes": [volume.name for volume in self.volumes],
            "volumeMounts": [mount.mount_path for mount in self.volume_mounts],
            "topologySpreadConstraints": spreads,
        }
        return [field for field, found in keys.items() if len(set(found)) < len(found)]
