"""What a simulation runs on: the clock, the scheduling core, and emulated workers that fail and scale."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Dispatch
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.simulation.emulation.clock import VirtualClock
from partita_runtime.simulation.emulation.cluster import EmulatedCluster
from partita_runtime.simulation.emulation.executions import BatchExecution
from partita_runtime.simulation.emulation.failures import Failure, worker_failures
from partita_runtime.simulation.emulation.network import Contention
from partita_runtime.simulation.emulation.noise import Delays, Noise
from partita_runtime.simulation.emulation.placement import WorkerPlacement, placements
from partita_runtime.simulation.event_loop import report_of
from partita_runtime.simulation.report import SimulationReport, Tally
from partita_runtime.simulation.scaling import Scaler, Scaling


@dataclass(frozen=True)
class Environment:
    """How execution differs from exact times on fixed workers, and what is recorded of it."""

    noise: Noise
    failures: Sequence[Failure]
    delays: Delays
    contention: Contention
    scaling: Scaling | None
    """With it, the autoscaler places the workers."""
    placed: Sequence[WorkerPlacement] | None
    """The workers; by default, those that the plan asks for."""
    timeline: bool
    """Whether to record each execution."""


class EmulatedSystem:
    """The parts of one simulation. `start` gives the workers; `report` reads them after the run.

    Raises ValueError if `seconds` is not positive.
    """

    def __init__(
        self, plan: SchedulingPlan, seconds: float, environment: Environment, core: SchedulingCore | None = None
    ) -> None:
        if seconds <= 0:
            raise ValueError(f"a simulation needs more than 0 s, not {seconds:g}")
        self.seconds = seconds
        self.horizon = round(seconds * 1e6)
        self.clock = VirtualClock()
        self.core = core or SchedulingCore(plan)
        self.core.set_delays(environment.delays.ctrl_micros, environment.delays.per_request_micros)
        scaling = environment.scaling
        self.scaler = None if scaling is None else Scaler(scaling, plan, self.core, self.clock, self.horizon)
        self._plan = plan
        self._environment = environment
        self._executions: list[BatchExecution] = []

    def start(
        self, answered: Callable[[Dispatch], None], noisy: np.random.Generator, failing: np.random.Generator
    ) -> EmulatedCluster:
        """The workers, with their failures ahead; `answered` is called with each batch that a pipeline has answered."""
        environment = self._environment
        placed: Sequence[WorkerPlacement]
        if self.scaler is not None:
            placed = self.scaler.placed
        else:
            placed = placements(self._plan) if environment.placed is None else environment.placed
        cluster = EmulatedCluster(
            self.core,
            self.clock,
            self._plan,
            placed,
            environment.noise,
            environment.delays,
            noisy,
            answered,
            self._executions.append if environment.timeline else None,
            environment.contention,
        )
        cluster.schedule(worker_failures(environment.failures, placed, self.seconds, failing))
        if self.scaler is not None:
            self.scaler.begin(cluster)
        return cluster

    def report(self, cluster: EmulatedCluster, tallies: Sequence[Tally], seed: int) -> list[SimulationReport]:
        """A report for each tally; idle fractions, the timeline and the autoscaler's steps are those of all workers."""
        idle = cluster.idle_by_worker(self.horizon)
        steps = self.scaler.steps if self.scaler else ()
        return [report_of(tally, idle, self.seconds, seed, self._executions, steps) for tally in tallies]
