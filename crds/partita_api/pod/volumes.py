"""Volumes of a pod template, and where they are mounted. There is no hostPath: it would reach the node."""

from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from partita_api.fields.quantity import Quantity
from partita_api.meta import NAME_PATTERN, Rule, SpecModel
from partita_api.pod.reserved import OWN_PATHS, OWN_VOLUMES, SHARED_MEMORY_PATH, cel_list, is_own_path
from partita_api.pod.variables import DataKey, DataSource, ObjectName

MAX_VOLUMES: Final = 16
VOLUME_TYPES: Final = ("configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret")
PATH_PATTERN: Final = r"^(/\.?[A-Za-z0-9_-][A-Za-z0-9._@-]*)+$"
"""An absolute path without `.`, `..`, empty parts and a slash at its end."""

VolumeName = Annotated[str, Field(min_length=1, max_length=63, pattern=NAME_PATTERN)]
RelativePath = Annotated[
    str,
    Field(
        min_length=1, max_length=256, pattern=r"^\.?[A-Za-z0-9_-][A-Za-z0-9._@-]*(/\.?[A-Za-z0-9_-][A-Za-z0-9._@-]*)*$"
    ),
]
FileMode = Annotated[int, Field(ge=0, le=0o777)]


class KeyToPath(SpecModel):
    """One key of a Secret or ConfigMap as a file."""

    key: DataKey = Field(description="The key.")
    path: RelativePath = Field(description="The file, relative to the volume.")


Items = Annotated[tuple[KeyToPath, ...], Field(max_length=16)]
_ITEMS: Final = "Keys to mount, and their files. Empty: all keys."
_MODE: Final = "Mode of the files, such as 256 for 0400. Default: Kubernetes' own, 0644."


class ClaimVolume(SpecModel):
    """A PersistentVolumeClaim of the session's namespace."""

    claim_name: ObjectName = Field(description="The PersistentVolumeClaim.")
    read_only: bool = Field(default=False, description="Whether the pod may only read it.")


class ConfigMapVolume(DataSource):
    """A ConfigMap of the session's namespace as files."""

    items: Items = Field(default=(), description=_ITEMS)
    default_mode: FileMode | None = Field(default=None, description=_MODE)


class SecretVolume(SpecModel):
    """A Secret of the session's namespace as files."""

    secret_name: ObjectName = Field(description="The Secret.")
    items: Items = Field(default=(), description=_ITEMS)
    default_mode: FileMode | None = Field(default=None, description=_MODE)
    optional: bool = Field(default=False, description="Whether the pod starts without it.")


class StorageMedium(StrEnum):
    """Where an emptyDir is."""

    MEMORY = "Memory"


class EmptyDirVolume(SpecModel):
    """A directory that is deleted with its pod."""

    medium: StorageMedium | None = Field(default=None, description="Memory: a tmpfs. Default: the node's disk.")
    size_limit: Quantity | None = Field(default=None, description="Most bytes, such as 2Gi. Default: no limit.")


class ProjectedObject(DataSource):
    """A Secret or ConfigMap in a projected volume."""

    items: Items = Field(default=(), description=_ITEMS)


class ProjectedSource(SpecModel):
    """One source of a projected volume."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a projected source needs exactly one of secret and configMap",
            lambda source: (source.secret is None) != (source.config_map is None),
            "has(self.secret) != has(self.configMap)",
        ),
    )

    secret: ProjectedObject | None = Field(default=None, description="A Secret.")
    config_map: ProjectedObject | None = Field(default=None, description="A ConfigMap.")


class ProjectedVolume(SpecModel):
    """Several Secrets and ConfigMaps in one directory."""

    sources: tuple[ProjectedSource, ...] = Field(min_length=1, max_length=8, description="The Secrets and ConfigMaps.")
    default_mode: FileMode | None = Field(default=None, description=_MODE)


class Volume(SpecModel):
    """One volume."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"a volume needs exactly one of {', '.join(VOLUME_TYPES)}; there are no others",
            lambda volume: len(volume.sources) == 1,
            f"[{', '.join(f'has(self.{type})' for type in VOLUME_TYPES)}].filter(x, x).size() == 1",
        ),
        Rule(
            f"Partita or KubeRay has a volume of this name ({', '.join(OWN_VOLUMES)}); choose another one",
            lambda volume: volume.name not in OWN_VOLUMES,
            f"!(self.name in {cel_list(OWN_VOLUMES)})",
        ),
    )

    name: VolumeName = Field(description="Name of the volume, for volumeMounts.")
    config_map: ConfigMapVolume | None = Field(default=None, description="A ConfigMap as files.")
    empty_dir: EmptyDirVolume | None = Field(default=None, description="A directory that is deleted with its pod.")
    persistent_volume_claim: ClaimVolume | None = Field(default=None, description="A PersistentVolumeClaim.")
    projected: ProjectedVolume | None = Field(default=None, description="Several Secrets and ConfigMaps together.")
    secret: SecretVolume | None = Field(default=None, description="A Secret as files.")

    @property
    def sources(self) -> dict[str, SpecModel]:
        """What it is set to be, by type; exactly one."""
        found = (self.config_map, self.empty_dir, self.persistent_volume_claim, self.projected, self.secret)
        return {type: source for type, source in zip(VOLUME_TYPES, found, strict=True) if source is not None}

    @property
    def type(self) -> str:
        """Its type, such as emptyDir."""
        return next(iter(self.sources))


class VolumeMount(SpecModel):
    """Where a volume appears in the container."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"nothing can be mounted in {', '.join(OWN_PATHS)}, except at {SHARED_MEMORY_PATH}; choose another path",
            lambda mount: not is_own_path(mount.mount_path),
            f"self.mountPath == '{SHARED_MEMORY_PATH}' || "
            f"!{cel_list(OWN_PATHS)}.exists(p, self.mountPath == p || self.mountPath.startsWith(p + '/'))",
        ),
    )

    name: VolumeName = Field(description="The volume.")
    mount_path: str = Field(
        max_length=512,
        pattern=PATH_PATTERN,
        description="The directory, such as /mnt/cache, without a slash at its end.",
    )
    sub_path: RelativePath | None = Field(
        default=None, description="A directory or file of the volume. Default: all of it."
    )
    read_only: bool = Field(default=False, description="Whether the container may only read it.")
