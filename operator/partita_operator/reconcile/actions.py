"""The result of a pass: the status to write, and then the actions to execute, in order.

The status is written first. It has what an operator needs after a restart to repeat or undo an action.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from partita_api.gpupool import GPUPool, GPUPoolStatus
from partita_api.inferencesession import InferenceSessionStatus
from partita_api.pipelineplan import PipelinePlan, PipelinePlanStatus
from partita_api.profile import Profile, ProfileRequest
from partita_api.quality import Quality
from partita_operator.ports import NodeStep, ServingSpec
from partita_operator.reconcile.reasons import Severity
from partita_planner.mig.mig_parted import Entries
from partita_planner.problem import PlanningProblem


@dataclass(frozen=True)
class AddFinalizer:
    """Keep the object until everything outside of Kubernetes is removed."""


@dataclass(frozen=True)
class RemoveFinalizer:
    """Let Kubernetes delete the object."""


@dataclass(frozen=True)
class StartProfile:
    """Start a profiling run; does nothing if it exists."""

    request: ProfileRequest
    pool: GPUPool
    attempt: int


@dataclass(frozen=True)
class StoreProfile:
    """Keep a profile as a ConfigMap of the session's namespace."""

    profile: Profile


@dataclass(frozen=True)
class ForgetProfile:
    """Make the ConfigMap of a profile empty, so that the profile is made again."""

    key: str


@dataclass(frozen=True)
class RemoveProfileRun:
    """Stop a profiling run and delete its objects."""

    key: str
    attempt: int


@dataclass(frozen=True)
class Solve:
    """Search for a plan in the background. The answer is `search` of a later world, under the same key."""

    key: str
    problem: PlanningProblem


@dataclass(frozen=True)
class CancelSolve:
    """Stop the running search."""


@dataclass(frozen=True)
class CreatePlan:
    """Create a plan, unless another session got its accelerators meanwhile."""

    plan: PipelinePlan


@dataclass(frozen=True)
class KeepPlan:
    """Annotate a plan as the answer to later inputs, with the session's spec of these inputs."""

    name: str
    annotations: Mapping[str, str]


@dataclass(frozen=True)
class ApprovePlan:
    """Set spec.approved of a plan."""

    name: str


@dataclass(frozen=True)
class DeletePlan:
    """Delete a plan that is neither current nor kept for a rollback."""

    name: str


@dataclass(frozen=True)
class ApplyServing:
    """Apply this spec to the session's applications; repeated until they match."""

    spec: ServingSpec


@dataclass(frozen=True)
class CheckQuality:
    """Send samples to a plan in the background. The answer is `quality.check` of a later world."""

    plan: str
    question: str
    quality: Quality
    samples: str


@dataclass(frozen=True)
class PublishConfigurations:
    """Publish exactly these configurations to the partitioner."""

    configurations: Mapping[str, Entries]


@dataclass(frozen=True)
class PartitionNode:
    """Take one step with the GPUs of a node."""

    step: NodeStep


@dataclass(frozen=True)
class ApplyObject:
    """Write a Kubernetes object that belongs to the session."""

    manifest: Mapping[str, Any]


@dataclass(frozen=True)
class DeleteObject:
    """Delete a Kubernetes object that belongs to the session."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True)
class RemoveServing:
    """Remove the session's applications."""


Action = (
    AddFinalizer
    | RemoveFinalizer
    | StartProfile
    | StoreProfile
    | ForgetProfile
    | RemoveProfileRun
    | Solve
    | CancelSolve
    | CreatePlan
    | KeepPlan
    | ApprovePlan
    | DeletePlan
    | ApplyServing
    | RemoveServing
    | CheckQuality
    | ApplyObject
    | DeleteObject
    | PublishConfigurations
    | PartitionNode
)


@dataclass(frozen=True)
class Event:
    """A Kubernetes event, as `kubectl describe` shows it."""

    type: Severity
    reason: str
    message: str


Status = TypeVar("Status", InferenceSessionStatus, GPUPoolStatus)


@dataclass(frozen=True)
class Decision(Generic[Status]):
    """The result of one pass over one object."""

    status: Status
    requeue_after: float
    """Seconds until the next pass, if no event comes earlier."""
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    plan_statuses: Mapping[str, PipelinePlanStatus] = field(default_factory=dict)
    """The status of each of the session's plans."""
