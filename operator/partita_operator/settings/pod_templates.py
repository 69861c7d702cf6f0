"""Settings of pod templates: what sessions may set in spec.podTemplate."""

from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field

from partita_operator.settings.section import Section

Patterns = tuple[Annotated[str, Field(pattern=r"^[^\s?\[\]]+$", max_length=512)], ...]
"""Names, in which `*` stands for any characters."""


class PodField(StrEnum):
    """A part of a pod template that names nothing outside of the pod, so there is no pattern for it."""

    AFFINITY = "affinity"
    EMPTY_DIR = "emptyDir"
    NODE_SELECTOR = "nodeSelector"
    RESOURCES = "resources"
    SECURITY_CONTEXT = "securityContext"
    TOPOLOGY_SPREAD_CONSTRAINTS = "topologySpreadConstraints"


class PodTemplateSettings(Section):
    """What sessions may set in spec.podTemplate. In names, `*` stands for any characters."""

    allowed_fields: tuple[PodField, ...] = Field(
        default=(
            PodField.AFFINITY,
            PodField.EMPTY_DIR,
            PodField.NODE_SELECTOR,
            PodField.TOPOLOGY_SPREAD_CONSTRAINTS,
        ),
        description="Parts that name nothing: affinity, emptyDir (volumes), nodeSelector, resources, securityContext, "
        "topologySpreadConstraints.",
    )
    allowed_labels: Patterns = Field(
        default=("kueue.x-k8s.io/queue-name",),
        description="Keys of labels. Services and NetworkPolicies may select pods by labels.",
    )
    allowed_annotations: Patterns = Field(default=(), description="Keys of annotations.")
    allowed_images: Patterns = Field(
        default=(), description="Images, such as registry.example/team-a/*. An image contains code of its author."
    )
    allowed_image_pull_secrets: Patterns = Field(default=(), description="Secrets that pull images.")
    allowed_variables: Patterns = Field(
        default=("*_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "TORCH_LOGS", "TZ"),
        description="Variables of env. Some variables, such as LD_PRELOAD, run code. envFrom needs `*`.",
    )
    allowed_secrets: Patterns = Field(default=(), description="Secrets of env, envFrom and volumes.")
    allowed_config_maps: Patterns = Field(default=(), description="ConfigMaps of env, envFrom and volumes.")
    allowed_claims: Patterns = Field(default=(), description="PersistentVolumeClaims of volumes.")
    allowed_service_accounts: Patterns = Field(default=(), description="ServiceAccounts.")
    allowed_tolerations: Patterns = Field(
        default=(), description="Keys of tolerated taints. A toleration of all taints needs `*`."
    )
    allowed_priority_classes: Patterns = Field(default=(), description="PriorityClasses.")
    allowed_schedulers: Patterns = Field(default=(), description="Schedulers, such as volcano.")


def allows(patterns: Patterns, name: str) -> bool:
    """Whether one of the patterns matches the name.

    >>> allows(("registry.example/team-a/*",), "registry.example/team-a/vision:1")
    True
    """
    return any(fnmatchcase(name, pattern) for pattern in patterns)
