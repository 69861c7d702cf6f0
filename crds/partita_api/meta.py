"""Names that every part of Partita agrees on, and the base classes of its API models with the rules that they keep."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

GROUP: Final = "partita.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
CATEGORY: Final = "partita"

FIELD_MANAGER: Final = "partita"
"""The one server-side-apply field manager of everything Partita writes."""
FINALIZER: Final = f"{GROUP}/finalizer"

SESSION_LABEL: Final = f"{GROUP}/session"
POOL_LABEL: Final = f"{GROUP}/pool"
PROFILE_LABEL: Final = f"{GROUP}/profile"
MIG_DRAINING_LABEL: Final = f"{GROUP}/mig-draining"
"""On a node: its GPUs are about to be cut into other slices, so that nothing of Partita's is placed there."""

SESSION_SPEC_ANNOTATION: Final = f"{GROUP}/session-spec"
"""On a PipelinePlan: the session's spec that it was made from, as JSON."""
MANIFEST_ANNOTATION: Final = f"{GROUP}/manifest-digest"
"""On objects that Partita makes beside its own kinds: the digest of what it applied last."""
INPUTS_ANNOTATION: Final = f"{GROUP}/inputs-digest"
"""On a PipelinePlan: the digest of later inputs for which the search found the same plan again."""
RETRY_ANNOTATION: Final = f"{GROUP}/retry"
"""On a session: a new value makes Partita try again what it gave up."""
APPROVED_ANNOTATION: Final = f"{GROUP}/approved-plan"
"""On a session: name of the plan that may be rolled out; of any other plan it says nothing. On a pool: name of the
change of its nodes' slices that may be carried out."""
ROLLBACK_ANNOTATION: Final = f"{GROUP}/rollback"
"""On a session: PLAN@GENERATION, the plan to hold while the session's metadata.generation is that one."""
PAUSED_ANNOTATION: Final = f"{GROUP}/paused"
"""On a session: keep what serves as it is, and why; `false` means the same as no annotation."""

NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""DNS-1123 label: the form of the names of modules, pools and sessions."""
MAX_SESSION_NAME: Final = 54
"""A plan's name is the session's and nine more characters, and the value of labels, which have at most 63."""

_YEARS: Final = range(1970, 9000)


def _point_in_time(text: str) -> str:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or moment.year not in _YEARS:
        raise ValueError(f"write a time zone, and a year from {_YEARS[0]} to {_YEARS[-1]}")
    return text


Timestamp = Annotated[str, AfterValidator(_point_in_time), Field(json_schema_extra={"format": "date-time"})]
"""A point in time by RFC 3339, in the years that Python can compute with in every time zone."""


def is_session_name(name: str) -> bool:
    """Whether a session may have this name."""
    return len(name) <= MAX_SESSION_NAME and re.fullmatch(NAME_PATTERN, name) is not None


@dataclass(frozen=True)
class Rule:
    """One rule between fields of a model; CEL and Python refuse the same documents with the same message."""

    message: str
    """What is wrong and what to change; field names as in YAML."""
    holds: Callable[[Any], bool]
    """Whether an instance of the model keeps the rule."""
    cel: str | None
    """The same in CEL. None where the schema says it, as for the keys of a list."""

    @classmethod
    def exclusive(cls, one: str, other: str, message: str) -> Self:
        """Not both of two optional fields, whose names are one word each."""
        return cls(
            message,
            lambda model: getattr(model, one) is None or getattr(model, other) is None,
            f"!has(self.{one}) || !has(self.{other})",
        )


@dataclass(frozen=True)
class TransitionRule:
    """A rule between the old and the new state of an object, which the API server checks on updates."""

    message: str
    allows: Callable[[Any, Any], bool]
    """Whether the change from the first to the second instance is allowed."""
    cel: str
    """The same in CEL, with `oldSelf` for the old state."""


def is_unset(value: object) -> bool:
    """For `exclude_if` of later fields: documents without them, and the digests of these, stay what they were."""
    return value is None


class SpecModel(BaseModel):
    """A part of a resource's desired state: immutable, camelCase in YAML, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    rules: ClassVar[tuple[Rule, ...]] = ()
    """Rules between the fields; every instance keeps them."""
    transition_rules: ClassVar[tuple[TransitionRule, ...]] = ()
    """Rules for updates; only the API server and the admission webhook see the old state."""

    @model_validator(mode="after")
    def _keeps_rules(self) -> Self:
        broken = [rule.message for rule in type(self).rules if not rule.holds(self)]
        if broken:
            raise ValueError("; ".join(broken))
        return self


class StatusModel(BaseModel):
    """A part of a resource's observed state: immutable; fields of newer versions are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class ObjectMeta(StatusModel):
    """The part of Kubernetes' ObjectMeta that Partita reads."""

    name: str
    namespace: str | None = None
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
