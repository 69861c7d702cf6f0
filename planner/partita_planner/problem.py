"""The planner's input and output: a planning problem; a plan, or the reason why there is none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Final

from partita_api.fields.quantity import Quantity
from partita_api.gpupool import GPUPoolSpec
from partita_api.inferencesession import InferenceSessionSpec, Rate, Slo
from partita_api.pipelineplan import PipelinePlanSpec, SessionRef
from partita_api.profile import Profile
from partita_api.session.edge import Edge
from partita_api.session.module import ModelSource, Module, TensorSpec

LONGEST_SLO_MS: Final = 600_000
"""The longest SLO that a session may declare."""

_ANY_INPUT: Final = TensorSpec(shape=(1,))
"""Stands for the input of models of which only latencies are known."""


@dataclass(frozen=True)
class Pool:
    """One GPU class as the planner may use it."""

    name: str
    spec: GPUPoolSpec
    gpus: int
    """Whole accelerators that the plan may allocate: the pool's capacity less the GPUs of other sessions."""
    absent: int = 0
    """How many of them are not there yet: nodes of an elastic pool that come when a plan needs them."""

    @classmethod
    def partly_present(cls, name: str, spec: GPUPoolSpec, gpus: int, present: int) -> "Pool":
        """A pool of which a plan may allocate so many GPUs, and with so many present ones for it."""
        return cls(name, spec, gpus, absent=max(0, gpus - present))

    @classmethod
    def priced(cls, name: str, gpus: int, price_per_hour: float) -> "Pool":
        """A pool of GPUs with a price for each GPU, and GPUPoolSpec's defaults."""
        return cls(name, GPUPoolSpec(price_per_hour=Quantity(price_per_hour)), gpus)


@dataclass(frozen=True)
class PlanningProblem:
    """Everything that a plan depends on."""

    session: SessionRef
    spec: InferenceSessionSpec
    rate: float
    """Requests per second to plan for: the declared rate, or the observed one."""
    pools: tuple[Pool, ...]
    profiles: Mapping[tuple[str, str], Profile] = field(default_factory=dict)
    """By (module, pool). Every module with a model has at least one; a pair without a profile is not used."""
    current_plan: PipelinePlanSpec | None = None
    """The plan that serves now, if any: a warm start, and the fallback when time runs out."""

    @classmethod
    def of_chain(
        cls,
        milliseconds: Mapping[str, Mapping[str, Mapping[int, float]]],
        pools: Sequence[Pool],
        *,
        slo_ms: int,
        requests_per_second: int,
    ) -> "PlanningProblem":
        """The problem of models in a row that are not partitioned, from latencies alone.

        milliseconds: for each module, in the order of the chain, the time of one batch by pool and batch size.
        """
        names = list(milliseconds)
        models = {name: ModelSource(entrypoint=f"models:{name.replace('-', '_')}") for name in names}
        spec = InferenceSessionSpec(
            slo=Slo(latency_ms=slo_ms),
            rate=Rate(requests_per_second=requests_per_second),
            modules=tuple(Module(name=name, model=models[name], input=_ANY_INPUT) for name in names),
            edges=tuple(Edge.model_validate({"from": source, "to": target}) for source, target in pairwise(names)),
        )
        profiles = {
            (name, pool): Profile.of_whole_model(models[name], _ANY_INPUT, pool, times)
            for name, by_pool in milliseconds.items()
            for pool, times in by_pool.items()
        }
        return cls(SessionRef(name="chain"), spec, float(requests_per_second), tuple(pools), profiles)

    def with_gpus(self, gpus: Mapping[str, int]) -> "PlanningProblem":
        """The same problem with so many GPUs in the named pools."""
        pools = tuple(replace(pool, gpus=gpus.get(pool.name, pool.gpus)) for pool in self.pools)
        return replace(self, pools=pools)

    @property
    def present_only(self) -> "PlanningProblem | None":
        """The same problem without absent GPUs; None if all are present."""
        if not any(pool.absent for pool in self.pools):
            return None
        present = (replace(pool, gpus=max(0, pool.gpus - pool.absent), absent=0) for pool in self.pools)
        return replace(self, pools=tuple(present))

    def with_slo(self, millis: int) -> "PlanningProblem":
        """The same problem with another SLO, in milliseconds."""
        slo = self.spec.slo.model_copy(update={"latency_ms": millis})
        return replace(self, spec=self.spec.model_copy(update={"slo": slo}))

    def with_rate(self, rate: float) -> "PlanningProblem":
        """The same problem for another rate, in requests per second."""
        return replace(self, rate=float(rate))


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
    """Why there is no plan, and what would make one possible."""

    reason: NoPlanReason
    message: str
    """For users: which constraint cannot be met, and what to change."""
    smallest_slo_ms: int | None = None
    """The smallest SLO with a plan for the same rate on the same GPUs."""
    largest_rate: int | None = None
    """The largest whole number of requests per second with a plan."""
    gpus_missing: Mapping[str, int] = field(default_factory=dict)
    """GPUs by pool with which there is a plan; with one less of any pool there is none."""


@dataclass(frozen=True)
class Planned:
    """A plan that has passed the validator."""

    plan: PipelinePlanSpec


Outcome = Planned | NoPlan
