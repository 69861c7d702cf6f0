"""The reasons that Partita's conditions give. `docs/reference/conditions.md` says what each means."""

from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """A CamelCase word for programs."""

    # what a person has to change
    INVALID_SPEC = "InvalidSpec"
    FORBIDDEN_MODEL = "ForbiddenModel"
    POOL_NOT_FOUND = "PoolNotFound"
    POOL_TERMINATING = "PoolTerminating"
    NO_POOL_SELECTED = "NoPoolSelected"
    INVALID_POOL = "InvalidPool"
    POWER_UNKNOWN = "PowerUnknown"
    NO_CAPACITY = "NoCapacity"
    PROFILING_FAILED = "ProfilingFailed"
    QUOTA_EXCEEDED = "QuotaExceeded"
    OUTRANKED = "Outranked"
    CANNOT_SCALE_FROM_ZERO = "CannotScaleFromZero"
    ROLLBACK_REFUSED = "RollbackRefused"
    PARTITIONING_DISABLED = "PartitioningDisabled"
    PARTITIONING_FAILED = "PartitioningFailed"
    LABELS_CHANGED = "LabelsChanged"
    NOT_ENOUGH_NODES = "NotEnoughNodes"
    # on the way
    WAITING_FOR_POOLS = "WaitingForPools"
    PROFILING = "Profiling"
    PLANNING = "Planning"
    AWAITING_APPROVAL = "AwaitingApproval"
    OUTSIDE_WINDOW = "OutsideWindow"
    PAUSED = "Paused"
    ROLLED_BACK = "RolledBack"
    WAITING_FOR_PROFILES = "WaitingForProfiles"
    ROLLING_OUT = "RollingOut"
    PARTITIONING = "Partitioning"
    SCALING = "Scaling"
    SCALING_FROM_ZERO = "ScalingFromZero"
    ENGINE_UNAVAILABLE = "EngineUnavailable"
    ACTION_FAILED = "ActionFailed"
    DELETING = "Deleting"
    IN_USE = "InUse"
    # as wanted
    PROFILES_READY = "ProfilesReady"
    SOME_PROFILES_MISSING = "SomeProfilesMissing"
    PLAN_READY = "PlanReady"
    ROLLED_OUT = "RolledOut"
    SERVING = "Serving"
    SCALED_TO_ZERO = "ScaledToZero"
    SETTLED = "Settled"
    APPROVED = "Approved"
    SUPERSEDED = "Superseded"
    # the objective
    SLO_MET = "SLOMet"
    SLO_MISSED = "SLOMissed"
    NO_TRAFFIC = "NoTraffic"
    NO_SIGNALS = "NoSignals"
    # pools
    AVAILABLE = "Available"
    PARTITIONED = "Partitioned"
    NO_NODES = "NoNodes"
    NO_ACCELERATORS = "NoAccelerators"
    NO_COUNT = "NoCount"


PROBLEMS: Final = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.POOL_NOT_FOUND,
        Reason.POOL_TERMINATING,
        Reason.NO_POOL_SELECTED,
        Reason.INVALID_POOL,
        Reason.POWER_UNKNOWN,
        Reason.NO_CAPACITY,
        Reason.PROFILING_FAILED,
        Reason.QUOTA_EXCEEDED,
        Reason.OUTRANKED,
        Reason.CANNOT_SCALE_FROM_ZERO,
        Reason.ROLLBACK_REFUSED,
        Reason.PARTITIONING_DISABLED,
        Reason.PARTITIONING_FAILED,
        Reason.LABELS_CHANGED,
        Reason.NOT_ENOUGH_NODES,
        Reason.SOME_PROFILES_MISSING,
        Reason.ENGINE_UNAVAILABLE,
        Reason.ACTION_FAILED,
        Reason.IN_USE,
        Reason.SLO_MISSED,
        Reason.NO_NODES,
        Reason.NO_ACCELERATORS,
        Reason.NO_COUNT,
    }
)
"""Reasons whose events are warnings; so are all of the planner's reasons for having no plan."""
