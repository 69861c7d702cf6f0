"""The placement of simulated workers on accelerators, and of accelerators on nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from partita_runtime.scheduling.events import StageRef
from partita_runtime.scheduling.plan import SchedulingPlan


class WorkerPlacement(NamedTuple):
    """One worker of one stage with its node; a worker with placements for several stages serves all of them."""

    stage: StageRef
    worker: str
    node: str
    gpu: str = ""
    """Its accelerator; workers on the same one fail together. If empty, the worker has its own accelerator."""


@dataclass
class _Accelerator:
    """One whole accelerator, cut into equal vGPUs for the replicas of one stage."""

    number: int
    free: int
    """vGPUs without a replica."""


class AcceleratorAllocator:
    """Assigns replicas to as few accelerators of each pool as possible, low numbers first.

    An accelerator holds replicas of one stage only. `gpus_per_node` is by pool, and 1 by default.
    """

    def __init__(self, plan: SchedulingPlan, gpus_per_node: Mapping[str, int] | None = None) -> None:
        self._per_node = gpus_per_node or {}
        self._stages = dict(plan.stages())
        self._used: dict[str, set[int]] = {stage.pool: set() for stage in self._stages.values()}
        self._by_stage: dict[StageRef, list[_Accelerator]] = {ref: [] for ref in self._stages}
        self._replicas = dict.fromkeys(self._stages, 0)
        self._assigned: dict[str, tuple[StageRef, _Accelerator]] = {}

    def add(self, ref: StageRef) -> WorkerPlacement:
        """Place one more replica of a stage, with a new name."""
        stage = self._stages[ref]
        accelerator = next((each for each in self._by_stage[ref] if each.free), None)
        if accelerator is None:
            used = self._used[stage.pool]
            accelerator = _Accelerator(next(n for n in range(len(used) + 1) if n not in used), stage.vgpu_divisor)
            used.add(accelerator.number)
            self._by_stage[ref].append(accelerator)
        accelerator.free -= 1
        worker = f"{ref.module}/{ref.pipeline}/{ref.stage}/{self._replicas[ref]}"
        self._replicas[ref] += 1
        self._assigned[worker] = (ref, accelerator)
        node = accelerator.number // self._per_node.get(stage.pool, 1)
        return WorkerPlacement(ref, worker, f"{stage.pool}-{node}", f"{stage.pool}-gpu-{accelerator.number}")

    def remove(self, worker: str) -> None:
        """Remove a replica; an accelerator without replicas becomes free."""
        ref, accelerator = self._assigned.pop(worker)
        stage = self._stages[ref]
        accelerator.free += 1
        if accelerator.free == stage.vgpu_divisor:
            self._by_stage[ref].remove(accelerator)
            self._used[stage.pool].remove(accelerator.number)


def placements(plan: SchedulingPlan, gpus_per_node: Mapping[str, int] | None = None) -> list[WorkerPlacement]:
    """The placements of all replicas of a plan, on as few accelerators and nodes as possible.

    The stages of a sub-cluster share their workers.
    """
    allocator = AcceleratorAllocator(plan, gpus_per_node)
    shared: dict[tuple[str, int], WorkerPlacement] = {}
    placed = []
    for ref, stage in plan.stages():
        for number in range(stage.replicas):
            place = shared.get((stage.subcluster or "", number))
            if place is None:
                place = allocator.add(ref)
            if stage.subcluster is not None:
                shared[stage.subcluster, number] = place
            placed.append(place._replace(stage=ref))
    return placed
