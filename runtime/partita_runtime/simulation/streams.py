"""Independent models on shared workers: each with requests, an SLO and a report of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Dispatch, Drop, DropReason
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.simulation.arrivals import Arrivals
from partita_runtime.simulation.clock import VirtualClock
from partita_runtime.simulation.cluster import EmulatedCluster
from partita_runtime.simulation.conditions import EXACT, NO_DELAYS, Delays, Noise
from partita_runtime.simulation.failures import Failure, worker_failures
from partita_runtime.simulation.network import NO_CONTENTION, Contention
from partita_runtime.simulation.placement import Placement, placements
from partita_runtime.simulation.report import Execution, SimulationReport, Tally
from partita_runtime.simulation.run import ended, run
from partita_runtime.simulation.scaling import Scaler, Scaling

QuerySizes = Callable[[int, np.random.Generator], NDArray[np.int64]]
"""(how many queries, generator) -> samples of each, from 1."""


@dataclass(frozen=True)
class Stream:
    """The requests of one module."""

    module: str
    arrivals: Arrivals
    slo_ms: float
    sizes: QuerySizes | None = None
    """If given, each arrival is a query of so many samples, and in time if all of them are."""


def simulate_streams(
    plan: SchedulingPlan,
    streams: Sequence[Stream],
    seconds: float,
    seed: int,
    *,
    noise: Noise = EXACT,
    failures: Sequence[Failure] = (),
    delays: Delays = NO_DELAYS,
    contention: Contention = NO_CONTENTION,
    scaling: Scaling | None = None,
    placed: Sequence[Placement] | None = None,
    timeline: bool = False,
) -> dict[str, SimulationReport]:
    """Run a plan for `seconds` of virtual time, and then until all requests have ended; a report for each module.

    The same arguments give the same reports. Idle fractions, the timeline and the autoscaler's steps are those of all
    workers. With `scaling` workers are placed as they come.
    """
    seeds = np.random.SeedSequence(seed).spawn(2 + len(streams))
    noisy, *drawn, failing = (np.random.default_rng(s) for s in seeds)
    horizon = round(seconds * 1e6)
    clock = VirtualClock()
    core = SchedulingCore(plan)
    core.set_delays(delays.ctrl_micros, delays.per_request_micros)
    models = _Models(core, clock, streams)
    scaler = None if scaling is None else Scaler(scaling, plan, core, clock, horizon)
    if scaler is not None:
        placed = scaler.placed
    elif placed is None:
        placed = placements(plan)
    executions: list[Execution] = []
    cluster = EmulatedCluster(
        core,
        clock,
        plan,
        placed,
        noise,
        delays,
        noisy,
        models.answered,
        executions.append if timeline else None,
        contention,
    )
    cluster.schedule(worker_failures(failures, placed, seconds, failing))
    if scaler is not None:
        scaler.begin(cluster)
    arriving: list[tuple[int, int, int]] = []
    for number, (stream, generator) in enumerate(zip(streams, drawn, strict=True)):
        times = np.rint(stream.arrivals(seconds, generator) * 1e6).astype(np.int64).tolist()
        sizes = stream.sizes(len(times), generator).tolist() if stream.sizes else [1] * len(times)
        arriving += zip(times, [number] * len(times), sizes, strict=True)
    arriving.sort()
    run(
        clock,
        core,
        cluster,
        models.dropped,
        [time for time, _, _ in arriving],
        lambda at: models.arrive(*arriving[at][1:]),
    )
    idle = cluster.idle_by_worker(horizon)
    steps = scaler.steps if scaler else ()
    return {
        stream.module: ended(tally, idle, seconds, seed, executions, steps)
        for stream, tally in zip(streams, models.tallies, strict=True)
    }


class _Query:
    """One arrival: how many of its samples are still to be answered."""

    __slots__ = ("arrived", "left", "number")

    def __init__(self, number: int, arrived: int, left: int) -> None:
        self.number = number
        self.arrived = arrived
        self.left = left


class _Models:
    """Makes requests of the arrivals, and counts how they end."""

    def __init__(self, core: SchedulingCore, clock: VirtualClock, streams: Sequence[Stream]) -> None:
        self._core = core
        self._clock = clock
        self._streams = streams
        self._numbers = {stream.module: number for number, stream in enumerate(streams)}
        self._slos = [round(stream.slo_ms * 1000) for stream in streams]
        self._open: dict[int, _Query] = {}
        self._next_id = 0
        self.tallies = [Tally() for _ in streams]

    def arrive(self, number: int, samples: int) -> None:
        """One query of one stream."""
        now = self._clock.now
        self.tallies[number].offered += 1
        query = _Query(number, now, samples)
        for _ in range(samples):
            self._open[self._next_id] = query
            self._core.arrive(self._next_id, self._streams[number].module, now + self._slos[number], now)
            self._next_id += 1

    def answered(self, dispatch: Dispatch) -> None:
        """All samples of a batch are answered."""
        self.tallies[self._numbers[dispatch.module]].count_batch(dispatch)
        for request_id in dispatch.request_ids:
            query = self._open.pop(request_id, None)
            if query is None:
                continue
            query.left -= 1
            if not query.left:
                self.tallies[query.number].answered(self._clock.now - query.arrived, self._slos[query.number])

    def dropped(self, drop: Drop) -> None:
        """A sample is not answered: its query fails, once."""
        query = self._open.pop(drop.request_id, None)
        if query is not None and query.left > 0:
            query.left = 0
            self.tallies[query.number].dropped[DropReason(drop.reason)] += 1
