"""What a simulation adds to the plan: noise, failures, delays, and where the workers are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp
from typing import Final, NamedTuple

import numpy as np

from partita_runtime.scheduling.events import StageRef
from partita_runtime.scheduling.plan import ScheduledStage, SchedulingPlan


@dataclass(frozen=True)
class Noise:
    """How real executions differ from their profile."""

    spread: float = 0.0
    """Standard deviation of the logarithm of actual / profiled time; 0.05 is about 5 %."""
    bias: float = 1.0
    """Mean of actual / profiled time: 1.2 if all executions take a fifth longer than profiled."""
    error_rate: float = 0.0
    """Share of executions that fail."""

    def __post_init__(self) -> None:
        if self.spread < 0 or self.bias <= 0 or not 0 <= self.error_rate <= 1:
            raise ValueError(f"{self} needs spread >= 0, bias > 0 and an error rate between 0 and 1")

    def factor(self, generator: np.random.Generator) -> float:
        """Actual / profiled time of one execution (log-normal)."""
        if not self.spread:
            return self.bias
        return self.bias * exp(self.spread * generator.standard_normal() - self.spread**2 / 2)

    def fails(self, generator: np.random.Generator) -> bool:
        """Whether one execution fails."""
        return bool(self.error_rate) and generator.random() < self.error_rate


EXACT: Final = Noise()
"""Executions take what the profile says."""


@dataclass(frozen=True)
class WorkerFailure:
    """A worker dies, with everything it has; its replacement, if any, has the same name."""

    worker: str
    at_seconds: float
    back_after_seconds: float | None = None


@dataclass(frozen=True)
class Delays:
    """Time from a dispatch until the first worker has the inputs: ctrl + per_request * batch size (microseconds)."""

    ctrl_micros: int = 0
    per_request_micros: int = 0

    def of(self, batch_size: int) -> int:
        """The delay of one batch."""
        return self.ctrl_micros + self.per_request_micros * batch_size


NO_DELAYS: Final = Delays()


class Placement(NamedTuple):
    """One worker of one stage, and its node; a worker placed for several stages serves them all."""

    stage: StageRef
    worker: str
    node: str


def placements(plan: SchedulingPlan, gpus_per_node: Mapping[str, int] | None = None) -> list[Placement]:
    """All replicas of a plan on as few accelerators, and these on as few nodes, as they need.

    `gpus_per_node` is by pool; 1 for those not named.
    """
    per_node = gpus_per_node or {}
    used: dict[str, int] = {}
    placed = []
    for ref, stage in _stages(plan):
        first = used.get(stage.pool, 0)
        for replica in range(stage.replicas):
            node = (first + replica // stage.vgpu_divisor) // per_node.get(stage.pool, 1)
            name = f"{ref.module}/{ref.pipeline}/{ref.stage}/{replica}"
            placed.append(Placement(ref, name, f"{stage.pool}-{node}"))
        used[stage.pool] = first + -(-stage.replicas // stage.vgpu_divisor)
    return placed


def _stages(plan: SchedulingPlan) -> Iterable[tuple[StageRef, ScheduledStage]]:
    for module in plan.modules:
        for pipeline in module.pipelines:
            for number, stage in enumerate(pipeline.stages):
                yield StageRef(module.name, pipeline.name, number), stage
