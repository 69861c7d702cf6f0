"""Where the workers of a simulated plan are: on which accelerators, and these on which nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from partita_runtime.scheduling.events import StageRef
from partita_runtime.scheduling.plan import SchedulingPlan


class WorkerPlacement(NamedTuple):
    """One worker of one stage, and its node; a worker placed for several stages serves them all."""

    stage: StageRef
    worker: str
    node: str
    gpu: str = ""
    """The accelerator; workers with the same one fail together. Empty: one of its own."""


@dataclass
class _Accelerator:
    """One whole accelerator, cut into equal vGPUs for the replicas of one stage."""

    number: int
    free: int
    """vGPUs without a replica."""


class Space:
    """Accelerators that replicas come to and leave: as few of each pool as they need, low numbers first.

    An accelerator holds replicas of one stage. `gpus_per_node` is by pool; 1 for those not named.
    """

    def __init__(self, plan: SchedulingPlan, gpus_per_node: Mapping[str, int] | None = None) -> None:
        self._per_node = gpus_per_node or {}
        self._stages = dict(plan.stages())
        self._used: dict[str, set[int]] = {stage.pool: set() for stage in self._stages.values()}
        self._by_stage: dict[StageRef, list[_Accelerator]] = {ref: [] for ref in self._stages}
        self._replicas = dict.fromkeys(self._stages, 0)
        self._homes: dict[str, tuple[StageRef, _Accelerator]] = {}

    def add(self, ref: StageRef) -> WorkerPlacement:
        """One more replica of a stage, with a name that none has had."""
        stage = self._stages[ref]
        home = next((accelerator for accelerator in self._by_stage[ref] if accelerator.free), None)
        if home is None:
            used = self._used[stage.pool]
            home = _Accelerator(next(n for n in range(len(used) + 1) if n not in used), stage.vgpu_divisor)
            used.add(home.number)
            self._by_stage[ref].append(home)
        home.free -= 1
        worker = f"{ref.module}/{ref.pipeline}/{ref.stage}/{self._replicas[ref]}"
        self._replicas[ref] += 1
        self._homes[worker] = (ref, home)
        node = home.number // self._per_node.get(stage.pool, 1)
        return WorkerPlacement(ref, worker, f"{stage.pool}-{node}", f"{stage.pool}-gpu-{home.number}")

    def remove(self, worker: str) -> None:
        """A replica is gone for good; an accelerator that is then empty is free."""
        ref, home = self._homes.pop(worker)
        stage = self._stages[ref]
        home.free += 1
        if home.free == stage.vgpu_divisor:
            self._by_stage[ref].remove(home)
            self._used[stage.pool].remove(home.number)


def placements(plan: SchedulingPlan, gpus_per_node: Mapping[str, int] | None = None) -> list[WorkerPlacement]:
    """All replicas of a plan on as few accelerators, and these on as few nodes, as they need.

    The stages of a sub-cluster have the same workers.
    """
    space = Space(plan, gpus_per_node)
    shared: dict[tuple[str, int], WorkerPlacement] = {}
    placed = []
    for ref, stage in plan.stages():
        for number in range(stage.replicas):
            there = shared.get((stage.subcluster or "", number))
            if there is None:
                there = space.add(ref)
            if stage.subcluster is not None:
                shared[stage.subcluster, number] = there
            placed.append(there._replace(stage=ref))
    return placed
