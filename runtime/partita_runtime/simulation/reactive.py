"""The reactive data plane that PPipe compares itself with (PPipe, section 7.4): every pool batches by itself.

Each pool of a pooled pipeline has its own queue. It dispatches to an idle vGPU the largest batch that meets the pool's
SLO, which is a share of the end-to-end SLO in proportion to the planned latencies. Nothing is reserved on the network:
batches that leave a pool are sent to the nodes of the next pool in turn, and queue behind other transfers on their
links. Time that a pool does not use is left to the next pool, and every vGPU of a pool can serve a request without
another transfer. PPipe does not describe either of these for its baseline, so this one is stronger.
"""

from collections.abc import Sequence
from itertools import accumulate, cycle

import numpy as np

from partita_api.session.execution import BatchingPolicy
from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Dispatch, Drop, DropReason, StageRef
from partita_runtime.scheduling.modules.pipeline_state import transfer_micros
from partita_runtime.scheduling.plan import ScheduledModule, ScheduledPipeline, SchedulingPlan
from partita_runtime.simulation.emulation.clock import VirtualClock
from partita_runtime.simulation.emulation.cluster import EmulatedCluster
from partita_runtime.simulation.emulation.network import EmulatedNode
from partita_runtime.simulation.emulation.noise import EXACT, NO_DELAYS
from partita_runtime.simulation.emulation.placement import WorkerPlacement, placements
from partita_runtime.simulation.event_loop import report_of, run
from partita_runtime.simulation.report import SimulationReport, Tally
from partita_runtime.simulation.streams import RequestStream


def simulate_reactive(
    plan: SchedulingPlan,
    streams: Sequence[RequestStream],
    seconds: float,
    seed: int,
    *,
    placed: Sequence[WorkerPlacement] | None = None,
) -> dict[str, SimulationReport]:
    """Run like `simulate_streams`, but every pool batches by itself.

    Raises ValueError for queries of several samples, which are not supported.
    """
    if any(stream.sizes for stream in streams):
        raise ValueError("the reactive data plane takes requests of one sample; give streams without sizes")
    noisy, *drawn = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(1 + len(streams)))
    placed = placements(plan) if placed is None else placed
    split = _split(plan)
    clock, core = VirtualClock(), SchedulingCore(split)
    pools = _Pools(plan, placed, core, clock, streams)
    moved = [WorkerPlacement(StageRef(_pool(*place.stage), "a", 0), place.worker, place.node) for place in placed]
    cluster = EmulatedCluster(core, clock, split, moved, EXACT, NO_DELAYS, noisy, pools.answered)
    arriving: list[tuple[int, int]] = []
    for number, (stream, generator) in enumerate(zip(streams, drawn, strict=True)):
        times = np.rint(stream.arrivals(seconds, generator) * 1e6).astype(np.int64).tolist()
        arriving += [(time, number) for time in times]
    arriving.sort()
    run(clock, core, cluster, pools.dropped, [time for time, _ in arriving], lambda at: pools.arrive(arriving[at][1]))
    idle = cluster.idle_by_worker(round(seconds * 1e6))
    return {
        stream.module: report_of(tally, idle, seconds, seed)
        for stream, tally in zip(streams, pools.tallies, strict=True)
    }


class _Route:
    """One pipeline of a module: its pools, and the transfers between them."""

    def __init__(self, module: str, pipeline: ScheduledPipeline, plan: SchedulingPlan, slo: int) -> None:
        b = pipeline.batch_size
        stages = pipeline.stages
        self.pools = [_pool(module, pipeline.name, number) for number in range(len(stages))]
        self.transfers = [transfer_micros(pipeline, number, plan.bandwidth) for number in range(len(stages) - 1)]
        self.throughput = min(stage.replicas * b / stage.latency_micros[b - 1] for stage in stages)
        self.sent = 0
        steps = [s.latency_micros[b - 1] + t[b - 1] for s, t in zip(stages, [*self.transfers, [0] * b], strict=True)]
        self.deadlines = [round(slo * upto / sum(steps)) for upto in accumulate(steps)]
        """Microseconds from arrival until each pool must be done, including its transfer."""


class _RoutedRequest:
    """One request on its route."""

    __slots__ = ("arrived", "number", "route", "stage")

    def __init__(self, number: int, arrived: int, route: _Route) -> None:
        self.number = number
        self.arrived = arrived
        self.route = route
        self.stage = 0


class _Pools:
    """Sends requests from pool to pool."""

    def __init__(
        self,
        plan: SchedulingPlan,
        placed: Sequence[WorkerPlacement],
        core: SchedulingCore,
        clock: VirtualClock,
        streams: Sequence[RequestStream],
    ) -> None:
        self._core = core
        self._clock = clock
        self._slos = [round(stream.slo_ms * 1000) for stream in streams]
        modules = {module.name: module for module in plan.modules}
        self._routes = [
            [_Route(s.module, pipeline, plan, slo) for pipeline in modules[s.module].pipelines]
            for s, slo in zip(streams, self._slos, strict=True)
        ]
        self._nodes = {place.node: EmulatedNode() for place in placed}
        self._home = {place.worker: self._nodes[place.node] for place in placed}
        names: dict[str, dict[str, None]] = {}
        for place in placed:
            names.setdefault(_pool(*place.stage), {})[place.node] = None
        self._next_node = {pool: cycle([self._nodes[name] for name in nodes]) for pool, nodes in names.items()}
        self._requests: dict[int, _RoutedRequest] = {}
        self._next_id = 0
        self.tallies = [Tally() for _ in streams]

    def arrive(self, number: int) -> None:
        """One request; pipelines get theirs in proportion to their throughput."""
        self.tallies[number].offered += 1
        route = min(self._routes[number], key=lambda route: (route.sent + 1) / route.throughput)
        route.sent += 1
        self._enter(_RoutedRequest(number, self._clock.now, route))

    def answered(self, dispatch: Dispatch) -> None:
        """A batch leaves a pool."""
        requests = [self._requests.pop(request_id) for request_id in dispatch.request_ids]
        route, stage = requests[0].route, requests[0].stage
        if stage == len(route.pools) - 1:
            for request in requests:
                slo = self._slos[request.number]
                self.tallies[request.number].answered(self._clock.now - request.arrived, slo)
            return
        source, target = self._home[dispatch.path[0]], next(self._next_node[route.pools[stage + 1]])
        there = source.send(target, self._clock.now, route.transfers[stage][len(requests) - 1])
        for request in requests:
            request.stage += 1
            self._clock.at(there, self._enter, request)

    def dropped(self, drop: Drop) -> None:
        """A pool dropped a request."""
        request = self._requests.pop(drop.request_id)
        self.tallies[request.number].dropped[DropReason(drop.reason)] += 1

    def _enter(self, request: _RoutedRequest) -> None:
        """Queue at the next pool."""
        route, stage = request.route, request.stage
        sending = route.transfers[stage][0] if stage < len(route.transfers) else 0
        deadline = request.arrived + route.deadlines[stage] - sending
        self._requests[self._next_id] = request
        self._core.arrive(self._next_id, route.pools[stage], deadline, self._clock.now)
        self._next_id += 1


def _split(plan: SchedulingPlan) -> SchedulingPlan:
    """A plan with every pool as a separate module."""
    modules = tuple(
        ScheduledModule(
            name=_pool(module.name, pipeline.name, number),
            budget_micros=module.budget_micros,
            downstream_micros=0,
            pipelines=(ScheduledPipeline(name="a", batch_size=pipeline.batch_size, stages=(stage,)),),
        )
        for module in plan.modules
        for pipeline in module.pipelines
        for number, stage in enumerate(pipeline.stages)
    )
    return SchedulingPlan(name="reactive", policy=BatchingPolicy.EAGER, modules=modules)


def _pool(module: str, pipeline: str, stage: int) -> str:
    return f"{module}/{pipeline}/{stage}"
