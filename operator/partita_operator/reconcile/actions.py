"""What a reconciler answers: the status to write, and the actions to carry out after it, in order.

The status is written first. It holds what an action needs to be repeated or undone, so that an operator that dies
in between finds out at its next start.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from partita_api.gpupool import GPUPool, GPUPoolStatus
from partita_api.inferencesession import InferenceSessionStatus
from partita_api.pipelineplan import PipelinePlan, PipelinePlanStatus
from partita_api.profile import Profile, ProfileRequest
from partita_operator.ports import NodeStep, ServingSpec
from partita_operator.reconcile.reasons import Severity
from partita_planner.mig.parted import Entries
from partita_planner.problem import PlanningProblem


@dataclass(frozen=True)
class AddFinalizer:
    """Keep the object until everything outside of Kubernetes is undone."""


@dataclass(frozen=True)
class RemoveFinalizer:
    """Let the object go."""


@dataclass(frozen=True)
class StartProfile:
    """Start a profiling run; harmless if it is there."""

    request: ProfileRequest
    pool: GPUPool
    attempt: int


@dataclass(frozen=True)
class StoreProfile:
    """Keep a profile as a ConfigMap of the session's namespace."""

    profile: Profile


@dataclass(frozen=True)
class RemoveProfileRun:
    """Stop a profiling run and delete what it left."""

    key: str
    attempt: int


@dataclass(frozen=True)
class Solve:
    """Search for a plan in the background; the answer is a later world's `search` under the same key."""

    key: str
    problem: PlanningProblem


@dataclass(frozen=True)
class CancelSolve:
    """Give the running search up."""


@dataclass(frozen=True)
class CreatePlan:
    """Create a plan, unless its accelerators have been given to another session since it was made."""

    plan: PipelinePlan


@dataclass(frozen=True)
class KeepPlan:
    """Note on a plan that it is also the answer to later inputs, and the spec that those are from."""

    name: str
    annotations: Mapping[str, str]


@dataclass(frozen=True)
class ApprovePlan:
    """Set spec.approved of a plan."""

    name: str


@dataclass(frozen=True)
class DeletePlan:
    """Delete a plan that is neither in force nor kept for a rollback."""

    name: str


@dataclass(frozen=True)
class ApplyServing:
    """Make the session's applications so; repeated until they are."""

    spec: ServingSpec


@dataclass(frozen=True)
class PublishConfigurations:
    """Let the partitioner know these configurations, and no others."""

    configurations: Mapping[str, Entries]


@dataclass(frozen=True)
class PartitionNode:
    """Take one step with the GPUs of a node."""

    step: NodeStep


@dataclass(frozen=True)
class RemoveServing:
    """Take the session's applications down."""


Action = (
    AddFinalizer
    | RemoveFinalizer
    | StartProfile
    | StoreProfile
    | RemoveProfileRun
    | Solve
    | CancelSolve
    | CreatePlan
    | KeepPlan
    | ApprovePlan
    | DeletePlan
    | ApplyServing
    | RemoveServing
    | PublishConfigurations
    | PartitionNode
)


@dataclass(frozen=True)
class Event:
    """Something that happened, for `kubectl describe`."""

    type: Severity
    reason: str
    message: str


Status = TypeVar("Status", InferenceSessionStatus, GPUPoolStatus)


@dataclass(frozen=True)
class Decision(Generic[Status]):
    """What to do about one object."""

    status: Status
    requeue_after: float
    """Seconds after which to look again, if nothing happens before."""
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    plan_statuses: Mapping[str, PipelinePlanStatus] = field(default_factory=dict)
    """The status of each of the session's plans."""
