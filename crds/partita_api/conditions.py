"""The conditions in a status: their types, their meaning, and how to set one."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, Self

from pydantic import Field

from partita_api.meta import StatusModel, Timestamp

MAX_MESSAGE: Final = 1024


class ConditionType(StrEnum):
    """The types of condition that Partita sets, each with what is the case while it is true."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        """A member of this value; as a string it equals the value."""
        type = str.__new__(cls, value)
        type._value_ = value
        type.meaning = meaning
        return type

    # Of all kinds; the second and the third are those of kstatus.
    READY = "Ready", "the object serves its purpose now"
    RECONCILING = "Reconciling", "work toward the spec is under way"
    STALLED = "Stalled", "no progress without a change by a person"
    # Of sessions, in the order of their steps.
    PROFILED = "Profiled", "every pair of a model and a usable pool has a profile"
    PLANNED = "Planned", "a validated plan for the present spec exists"
    ROLLED_OUT = "RolledOut", "every stage of the plan has its replicas"
    SLO_MET = "SLOMet", "attainment over the last window reached the target"
    HELD = "Held", "a person or a policy keeps the session from its plan"
    EXPOSED = "Exposed", "clients reach the session at addresses that stay"
    CLIENTS_AUTHENTICATED = "ClientsAuthenticated", "only clients with valid credentials are answered"
    VERSIONS_READY = "VersionsReady", "all versions of the session get their requests"
    QUALITY_MET = "QualityMet", "the plan's answers to samples are as expected"
    # Of plans, which have RolledOut, too.
    APPROVED = "Approved", "the plan may be rolled out"
    # Of pools.
    PARTITIONED = "Partitioned", "the nodes are cut into slices as requested"
    PROVISIONED = "Provisioned", "an elastic pool has the accelerators that plans use"


class ConditionStatus(StrEnum):
    """The three values that Kubernetes gives a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(StatusModel):
    """One metav1.Condition."""

    type: str = Field(max_length=316, description="Type of the condition.")
    status: ConditionStatus = Field(description="True, False or Unknown.")
    reason: str = Field(max_length=1024, description="A CamelCase word for programs.")
    message: str = Field(max_length=32768, description="A text for people: what is wrong, and what to do.")
    observed_generation: int = Field(ge=0, description="The metadata.generation that the condition is about.")
    last_transition_time: Timestamp = Field(description="When `status` last changed.")


def set_condition(
    conditions: Iterable[Condition],
    type: ConditionType,
    status: ConditionStatus | bool,
    *,
    reason: str,
    message: str,
    generation: int,
    now: str,
) -> tuple[Condition, ...]:
    """`conditions` with the one of `type` set, in stable order.

    `now` (RFC 3339) becomes its lastTransitionTime only where its status changes. A message longer than
    MAX_MESSAGE characters is cut, visibly.
    """
    if isinstance(status, bool):
        status = ConditionStatus.TRUE if status else ConditionStatus.FALSE
    if len(message) > MAX_MESSAGE:
        message = message[: MAX_MESSAGE - 4] + " ..."
    existing = {c.type: c for c in conditions}
    previous = existing.get(type)
    changed = previous is None or previous.status != status
    existing[str(type)] = Condition(
        type=str(type),
        status=status,
        reason=reason,
        message=message,
        observed_generation=generation,
        last_transition_time=now if changed or previous is None else previous.last_transition_time,
    )
    return tuple(sorted(existing.values(), key=lambda c: c.type))


def is_true(conditions: Iterable[Condition], type: ConditionType) -> bool:
    """Whether the condition of `type` is there and true."""
    return any(c.type == type and c.status == ConditionStatus.TRUE for c in conditions)
