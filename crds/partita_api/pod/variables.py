"""Environment variables of a pod template, by value or from Secrets and ConfigMaps."""

from typing import Annotated, ClassVar, Final

from pydantic import Field

from partita_api.meta import Rule, SpecModel
from partita_api.pod.reserved import (
    CACHE_VARIABLES,
    OWN_VARIABLE_PREFIXES,
    OWN_VARIABLES,
    cel_list,
    is_own_variable,
    one_of,
)

OBJECT_NAME_PATTERN: Final = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"
VARIABLE_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
MAX_VARIABLES: Final = 32

ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=OBJECT_NAME_PATTERN)]
"""The name of an object of Kubernetes."""
DataKey = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
"""A key of a Secret or ConfigMap."""

_IS_CACHE: Final = f"self.name in {cel_list(CACHE_VARIABLES)}"


class KeyReference(SpecModel):
    """One key of a Secret or ConfigMap of the session's namespace."""

    name: ObjectName = Field(description="The Secret or ConfigMap.")
    key: DataKey = Field(description="Its key.")
    optional: bool = Field(default=False, description="Whether the pod starts without it.")


class VariableSource(SpecModel):
    """Where the value of a variable comes from."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "valueFrom needs exactly one of secretKeyRef and configMapKeyRef",
            lambda source: (source.secret_key_ref is None) != (source.config_map_key_ref is None),
            "has(self.secretKeyRef) != has(self.configMapKeyRef)",
        ),
    )

    secret_key_ref: KeyReference | None = Field(default=None, description="A key of a Secret.")
    config_map_key_ref: KeyReference | None = Field(default=None, description="A key of a ConfigMap.")


class EnvVar(SpecModel):
    """One environment variable."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a variable has value or valueFrom; remove one of them",
            lambda variable: not variable.value or variable.value_from is None,
            "!has(self.value) || self.value == '' || !has(self.valueFrom)",
        ),
        Rule(
            f"Partita, Ray or the container runtime sets this variable ({', '.join(OWN_VARIABLES)}, "
            f"{', '.join(f'{prefix}*' for prefix in OWN_VARIABLE_PREFIXES)}); remove it",
            lambda variable: not is_own_variable(variable.name),
            f"{_IS_CACHE} || !{one_of('self.name', OWN_VARIABLES, OWN_VARIABLE_PREFIXES)}",
        ),
    )

    name: str = Field(max_length=128, pattern=VARIABLE_PATTERN, description="The variable.")
    value: str = Field(default="", max_length=4096, description="Its value.")
    value_from: VariableSource | None = Field(default=None, description="A Secret or ConfigMap that has the value.")


class DataSource(SpecModel):
    """A Secret or ConfigMap of the session's namespace."""

    name: ObjectName = Field(description="The Secret or ConfigMap.")
    optional: bool = Field(default=False, description="Whether the pod starts without it.")


class EnvFromSource(SpecModel):
    """All keys of a Secret or ConfigMap as variables."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "envFrom needs exactly one of secretRef and configMapRef",
            lambda source: (source.secret_ref is None) != (source.config_map_ref is None),
            "has(self.secretRef) != has(self.configMapRef)",
        ),
    )

    prefix: str = Field(
        default="",
        max_length=128,
        pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$",
        description="What each variable begins with.",
    )
    secret_ref: DataSource | None = Field(default=None, description="The Secret.")
    config_map_ref: DataSource | None = Field(default=None, description="The ConfigMap.")
