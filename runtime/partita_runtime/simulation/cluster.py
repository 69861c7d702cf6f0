"""Emulated workers and links that carry out what the scheduling core dispatches."""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Dispatch, StageRef
from partita_runtime.scheduling.pipelines import transfer_micros
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.simulation.clock import VirtualClock
from partita_runtime.simulation.conditions import Delays, Noise, Placement
from partita_runtime.simulation.report import Execution


class Node:
    """One machine; each direction of its network carries one transfer at a time, first come first served."""

    __slots__ = ("downlink_free_at", "uplink_free_at")

    def __init__(self) -> None:
        self.uplink_free_at = 0
        self.downlink_free_at = 0

    def send(self, to: "Node", ready: int, micros: int) -> int:
        """When a transfer that takes `micros` and may start at `ready` is there; within a node it takes no time."""
        if self is to or not micros:
            return ready
        end = max(ready, self.uplink_free_at, to.downlink_free_at) + micros
        self.uplink_free_at = to.downlink_free_at = end
        return end


class _Batch:
    """A batch on its way through the stages."""

    __slots__ = ("dispatch", "path", "preempted", "stage")

    def __init__(self, dispatch: Dispatch, path: "tuple[_Worker, ...]") -> None:
        self.dispatch = dispatch
        self.path = path
        self.stage = 0
        self.preempted = False


class _Worker:
    """One vGPU. It starts no batch before its reserved start, and of those that are due the earliest reserved one."""

    __slots__ = ("busy_micros", "name", "node", "pool", "running", "since", "started", "waiting")

    def __init__(self, name: str, node: Node, pool: str, since: int) -> None:
        self.name = name
        self.node = node
        self.pool = pool
        self.since = since
        self.running: _Batch | None = None
        self.started = 0
        """When `running` began."""
        self.waiting: list[tuple[int, int, _Batch]] = []
        """Heap by reserved start of the batches whose inputs are there."""
        self.busy_micros = 0


class EmulatedCluster:
    """All workers of a plan: they take the profile's time, with noise, and report to the core."""

    def __init__(
        self,
        core: SchedulingCore,
        clock: VirtualClock,
        plan: SchedulingPlan,
        placements: Sequence[Placement],
        noise: Noise,
        delays: Delays,
        generator: np.random.Generator,
        answered: Callable[[Dispatch], None],
        executed: Callable[[Execution], None] | None = None,
    ) -> None:
        self._core = core
        self._clock = clock
        self._placements = placements
        self._noise = noise
        self._delays = delays
        self._generator = generator
        self._answered = answered
        self._tell = executed
        self._stages = {
            StageRef(module.name, pipeline.name, number): stage
            for module in plan.modules
            for pipeline in module.pipelines
            for number, stage in enumerate(pipeline.stages)
        }
        self._transfers = {
            StageRef(module.name, pipeline.name, number): transfer_micros(pipeline, number, plan.bandwidth)
            for module in plan.modules
            for pipeline in module.pipelines
            for number in range(len(pipeline.stages) - 1)
        }
        self._nodes = {placement.node: Node() for placement in placements}
        self._workers: dict[str, _Worker] = {}
        self._batches: dict[int, _Batch] = {}
        self._gone: list[_Worker] = []
        for name in dict.fromkeys(placement.worker for placement in placements):
            self.join(name)

    def join(self, name: str) -> None:
        """A worker comes up where it was placed."""
        places = [placement for placement in self._placements if placement.worker == name]
        pool = self._stages[places[0].stage].pool
        self._workers[name] = _Worker(name, self._nodes[places[0].node], pool, self._clock.now)
        for place in places:
            self._core.worker_joined(place.stage, name, place.node, self._clock.now)

    def lose(self, name: str) -> None:
        """A worker dies, and with it all batches that still need it."""
        worker = self._workers.pop(name, None)
        if worker is None:
            return
        self._gone.append(worker)
        hit = [i for i, batch in self._batches.items() if worker in batch.path[batch.stage :]]
        for batch_id in hit:
            del self._batches[batch_id]
        self._core.worker_lost(name, self._clock.now)

    def carry_out(self, dispatch: Dispatch) -> None:
        """Send a batch to the first worker of its path."""
        if dispatch.preempts is not None:
            self._stop(self._batches.pop(dispatch.preempts))
        batch = _Batch(dispatch, tuple(self._workers[name] for name in dispatch.path))
        self._batches[dispatch.batch_id] = batch
        self._clock.at(self._clock.now + self._delays.of(len(dispatch.request_ids)), self._receive, batch)

    def idle_by_worker(self, horizon: int) -> dict[str, tuple[str, float]]:
        """GPUPool, and share of the time from joining until `horizon` without work, by worker."""
        return {
            worker.name: (worker.pool, 1 - min(1.0, worker.busy_micros / (horizon - worker.since)))
            for worker in (*self._gone, *self._workers.values())
            if worker.since < horizon
        }

    def _receive(self, batch: _Batch) -> None:
        if batch.preempted:
            return
        worker = batch.path[batch.stage]
        heappush(worker.waiting, (batch.dispatch.starts[batch.stage], batch.dispatch.batch_id, batch))
        self._run_next(worker)

    def _run_next(self, worker: _Worker) -> None:
        if worker.running is not None or not worker.waiting or self._workers.get(worker.name) is not worker:
            return
        start, _, batch = worker.waiting[0]
        if start > self._clock.now:
            self._clock.at(start, self._run_next, worker)
            return
        heappop(worker.waiting)
        profiled = self._stages[self._ref(batch)].latency_micros[len(batch.dispatch.request_ids) - 1]
        took = max(1, round(profiled * self._noise.factor(self._generator)))
        worker.running = batch
        worker.started = self._clock.now
        self._clock.at(self._clock.now + took, self._executed, worker, batch, took)

    def _executed(self, worker: _Worker, batch: _Batch, took: int) -> None:
        now, dispatch = self._clock.now, batch.dispatch
        if worker.running is not batch or self._workers.get(worker.name) is not worker:
            return
        self._release(worker, batch)
        if self._noise.fails(self._generator):
            self._batches.pop(dispatch.batch_id, None)
            self._core.failed(dispatch.batch_id, now, "emulated failure")
        else:
            self._core.completed(dispatch.batch_id, batch.stage, now, took)
            if dispatch.batch_id in self._batches:
                self._go_on(batch)
        self._run_next(worker)

    def _stop(self, batch: _Batch) -> None:
        """The batch is preempted where it is: on its worker, or on its way there."""
        worker = batch.path[batch.stage]
        if worker.running is batch:
            self._release(worker, batch)
        worker.waiting = [entry for entry in worker.waiting if entry[2] is not batch]
        heapify(worker.waiting)
        batch.preempted = True

    def _release(self, worker: _Worker, batch: _Batch) -> None:
        now, dispatch = self._clock.now, batch.dispatch
        worker.running = None
        worker.busy_micros += now - worker.started
        if self._tell is not None:
            size = len(dispatch.request_ids)
            self._tell(Execution(worker.name, *self._ref(batch), dispatch.batch_id, size, worker.started, now))

    def _go_on(self, batch: _Batch) -> None:
        """To the next stage, or back with the answer."""
        if batch.stage == len(batch.path) - 1:
            del self._batches[batch.dispatch.batch_id]
            self._answered(batch.dispatch)
            return
        self._clock.at(max(self._clock.now, batch.dispatch.transfer_starts[batch.stage]), self._send, batch)

    def _send(self, batch: _Batch) -> None:
        micros = self._transfers[self._ref(batch)][len(batch.dispatch.request_ids) - 1]
        sender, receiver = batch.path[batch.stage], batch.path[batch.stage + 1]
        batch.stage += 1
        self._clock.at(sender.node.send(receiver.node, self._clock.now, micros), self._receive, batch)

    def _ref(self, batch: _Batch) -> StageRef:
        return StageRef(batch.dispatch.module, batch.dispatch.pipeline, batch.stage)
