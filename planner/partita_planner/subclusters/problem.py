"""Models to partition into sub-clusters, and the result (Symphony, section 4.4 and appendix A.1).

Every GPU of a sub-cluster has all its models loaded, so any GPU can run any batch. The limits of a sub-cluster are the
memory of one GPU, and the rate of its dispatcher.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf, isfinite


class BadSubclustersError(ValueError):
    """Invalid input; the message says the fix."""


@dataclass(frozen=True)
class ServedModel:
    """A model, with the symbols of the paper."""

    name: str
    rate: float
    """r_i: requests per second."""
    static_bytes: float
    """s_i: memory while it is loaded."""
    dynamic_bytes: float = 0.0
    """d_i: additional memory while it runs; one model runs at a time on a GPU."""
    load_cost: float = 1.0
    """c_i: cost of loading it, and of unloading it, on any sub-cluster."""


@dataclass(frozen=True)
class SubclusterProblem:
    """What a partition depends on."""

    models: tuple[ServedModel, ...]
    subclusters: int
    """l."""
    max_memory: float = inf
    """S_max: bytes of a sub-cluster's GPUs."""
    max_rate: float = inf
    """R_max: requests per second that a sub-cluster can handle."""
    memory_weight: float = 1.0
    """w, in units of average rate per average static memory: 1 counts relative imbalance of both alike."""
    current: Mapping[str, int] = field(default_factory=dict)
    """X': the sub-cluster (from 0) of each loaded model; models of removed sub-clusters count as new."""
    max_change_cost: float = inf
    """C_max: bound on the cost of loading and unloading (equation 10)."""

    def home(self, model: ServedModel) -> int | None:
        """The sub-cluster where a model is loaded now."""
        there = self.current.get(model.name)
        return there if there is not None and there < self.subclusters else None


@dataclass(frozen=True)
class Balance:
    """How evenly a partition spreads the models."""

    delta_rate: float
    """Delta R: the largest distance of a sub-cluster's rate from the average, as a share of the average (6)."""
    delta_memory: float
    """Delta S: the same of static memory (7)."""
    objective: float
    """Delta R + w Delta S (3)."""
    rate_imbalance: float
    """(max - min) / avg of the rate over sub-clusters: the paper's imbalance factor."""
    memory_imbalance: float
    """The same of static memory."""
    change_cost: float
    """Cost of loading and unloading (10)."""
    keeps_limits: bool
    """Whether memory (5), rate (4) and change cost (10) are within their bounds."""


@dataclass(frozen=True)
class Partition:
    """Every model's sub-cluster, and how good that is."""

    subcluster: Mapping[str, int]
    balance: Balance
    bound: float
    """Proven: no partition that keeps the constraints has a lower objective."""

    @property
    def gap(self) -> float:
        """The largest possible distance of the objective from the optimum, as a share of the averages."""
        return self.balance.objective - self.bound


class NoPartitionReason(StrEnum):
    """Why there is no partition."""

    MODEL_TOO_LARGE = "ModelTooLarge"
    MODEL_TOO_BUSY = "ModelTooBusy"
    NOT_ENOUGH_MEMORY = "NotEnoughMemory"
    NOT_ENOUGH_RATE = "NotEnoughRate"
    CHANGE_TOO_COSTLY = "ChangeTooCostly"
    INFEASIBLE = "Infeasible"
    TIME_LIMIT = "TimeLimit"


@dataclass(frozen=True)
class NoPartition:
    """Why there is no partition, and what would make one possible."""

    reason: NoPartitionReason
    message: str
    subclusters_needed: int | None = None
    """The least number of sub-clusters for which there may be a partition."""


def check(problem: SubclusterProblem) -> None:
    """Raises BadSubclustersError unless all numbers are valid."""
    if problem.subclusters < 1:
        raise BadSubclustersError(f"there are {problem.subclusters} sub-clusters; give at least 1")
    if not problem.models:
        raise BadSubclustersError("there are no models; give at least one")
    if len({model.name for model in problem.models}) < len(problem.models):
        raise BadSubclustersError("two models have the same name; give each its own name")
    for model in problem.models:
        for what, amount in (
            ("rate", model.rate),
            ("static memory", model.static_bytes),
            ("dynamic memory", model.dynamic_bytes),
            ("cost of loading", model.load_cost),
        ):
            if not (isfinite(amount) and amount >= 0):
                raise BadSubclustersError(f"model {model.name!r} has a {what} of {amount}; give a number of 0 or more")
    for what, limit in (("max_memory", problem.max_memory), ("max_rate", problem.max_rate)):
        if not limit > 0:
            raise BadSubclustersError(f"{what} is {limit}; give a number above 0")
    if not problem.max_change_cost >= 0:
        raise BadSubclustersError(f"max_change_cost is {problem.max_change_cost}; give a number of 0 or more")
    if not (isfinite(problem.memory_weight) and problem.memory_weight >= 0):
        raise BadSubclustersError(f"memory_weight is {problem.memory_weight}; give a number of 0 or more")
    for name, subcluster in problem.current.items():
        if subcluster < 0:
            raise BadSubclustersError(f"model {name!r} is in sub-cluster {subcluster}; they are counted from 0")
