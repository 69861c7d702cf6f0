"""What the planner is asked, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from partita_api.gpupool import GPUPoolSpec
from partita_api.inferencesession import InferenceSessionSpec
from partita_api.pipelineplan import PipelinePlanSpec, SessionRef
from partita_api.profile import Profile


@dataclass(frozen=True)
class Pool:
    """One GPU class as the planner may use it."""

    name: str
    spec: GPUPoolSpec
    gpus: int
    """Whole accelerators that the plan may allocate: the pool's capacity less what other sessions hold."""


@dataclass(frozen=True)
class PlanningProblem:
    """Everything that a plan depends on."""

    session: SessionRef
    spec: InferenceSessionSpec
    rate: float
    """Requests per second to plan for: the declared rate, or the observed one."""
    pools: tuple[Pool, ...]
    profiles: Mapping[tuple[str, str], Profile] = field(default_factory=dict)
    """By (module, pool). Every module with a model has at least one; a pair without one is not used."""
    current_plan: PipelinePlanSpec | None = None
    """The plan in force, if any: a warm start, and the fallback when time runs out."""


class NoPlanReason(StrEnum):
    """Why there is no plan."""

    INVALID_SESSION = "InvalidSession"
    NO_POOLS = "NoPools"
    SLO_TOO_TIGHT = "SLOTooTight"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    TIME_LIMIT = "TimeLimit"
    INVALID_PLAN = "InvalidPlan"


@dataclass(frozen=True)
class NoPlan:
    """There is no plan, and what would make one possible."""

    reason: NoPlanReason
    message: str
    """A sentence for people: which constraint cannot be met, and what to change."""
    smallest_slo_ms: int | None = None
    """The smallest SLO with a plan for the same rate on the same GPUs."""
    largest_rate: int | None = None
    """The largest whole number of requests per second with a plan."""
    gpus_missing: Mapping[str, int] = field(default_factory=dict)
    """GPUs with which there is a plan, and without any one of which there is none."""


@dataclass(frozen=True)
class Planned:
    """A plan that the validator has passed."""

    plan: PipelinePlanSpec


Outcome = Planned | NoPlan
