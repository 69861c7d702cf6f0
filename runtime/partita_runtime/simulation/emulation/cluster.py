"""Emulated workers and network links that execute the batches of the scheduling core."""

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Dispatch, StageRef
from partita_runtime.scheduling.modules.pipeline_state import transfer_micros
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.simulation.emulation.clock import VirtualClock
from partita_runtime.simulation.emulation.executions import BatchExecution, WorkerIdle
from partita_runtime.simulation.emulation.failures import WorkerFailure
from partita_runtime.simulation.emulation.network import NO_CONTENTION, Contention, EmulatedNode, network_of
from partita_runtime.simulation.emulation.noise import Delays, Noise
from partita_runtime.simulation.emulation.placement import WorkerPlacement

_RETIREMENT_CHECK_MICROS = 10_000
"""How often the cluster checks whether a retired worker is done."""


class _EmulatedBatch:
    """A batch on its path through the stages."""

    __slots__ = ("dispatch", "path", "preempted", "size", "stage")

    def __init__(self, dispatch: Dispatch, path: "list[_EmulatedWorker]") -> None:
        self.dispatch = dispatch
        self.path = path
        self.size = len(dispatch.request_ids)
        self.stage = 0
        """Its present stage, or the stage that it is being sent to."""
        self.preempted = False

    def remaining_workers(self) -> "list[_EmulatedWorker]":
        """The workers of the stages that are not completed."""
        return self.path[self.stage :]


class _EmulatedWorker:
    """One vGPU. It starts batches at their reserved start or later, the earliest reserved one first."""

    __slots__ = ("alive", "busy_micros", "name", "node", "pool", "running", "since", "started", "until", "waiting")

    def __init__(self, name: str, node: EmulatedNode, pool: str, since: int) -> None:
        self.name = name
        self.node = node
        self.pool = pool
        self.since = since
        self.until: int | None = None
        """When it was lost; None while it runs."""
        self.alive = True
        self.running: _EmulatedBatch | None = None
        self.started = 0
        """When `running` started."""
        self.waiting: list[tuple[int, int, _EmulatedBatch]] = []
        """Heap of the batches whose inputs have arrived: (reserved start, batch id, batch)."""
        self.busy_micros = 0


class EmulatedCluster:
    """All workers of a plan: executions take the profiled time, with noise, and are reported to the core."""

    def __init__(
        self,
        core: SchedulingCore,
        clock: VirtualClock,
        plan: SchedulingPlan,
        placements: Sequence[WorkerPlacement],
        noise: Noise,
        delays: Delays,
        generator: np.random.Generator,
        answered: Callable[[Dispatch], None],
        executed: Callable[[BatchExecution], None] | None = None,
        contention: Contention = NO_CONTENTION,
    ) -> None:
        self._core = core
        self._clock = clock
        self._noise = noise
        self._exact = noise.spread == 0 and noise.bias == 1
        self._delays = delays
        self._generator = generator
        self._answered = answered
        self._record = executed
        self._network = network_of(contention, clock)
        pipelines = [(module.name, pipeline) for module in plan.modules for pipeline in module.pipelines]
        self._latencies = {(name, p.name): [stage.latency_micros for stage in p.stages] for name, p in pipelines}
        """Execution times by batch size, by stage, by pipeline."""
        self._transfers = {
            (name, p.name): [transfer_micros(p, number, plan.bandwidth) for number in range(len(p.stages) - 1)]
            for name, p in pipelines
        }
        self._pools = {
            StageRef(name, p.name, number): stage.pool for name, p in pipelines for number, stage in enumerate(p.stages)
        }
        self._nodes: dict[str, EmulatedNode] = {}
        self._places: dict[str, list[WorkerPlacement]] = {}
        self._workers: dict[str, _EmulatedWorker] = {}
        self._batches: dict[int, _EmulatedBatch] = {}
        self._gone: list[_EmulatedWorker] = []
        for place in placements:
            self._places.setdefault(place.worker, []).append(place)
        for name in self._places:
            self.join(name)

    def schedule(self, failures: Iterable[WorkerFailure]) -> None:
        """Schedule failures and recoveries of workers. Raises ValueError for a worker without a placement."""
        failures = list(failures)
        unknown = sorted({failure.worker for failure in failures} - self._places.keys())
        if unknown:
            raise ValueError(f"no workers {unknown} to fail; they are named <module>/<pipeline>/<stage>/<number>")
        for failure in failures:
            at = round(failure.at_seconds * 1e6)
            self._clock.at(at, self.lose, failure.worker)
            if failure.back_after_seconds is not None:
                self._clock.at(at + round(failure.back_after_seconds * 1e6), self.join, failure.worker)

    def add(self, place: WorkerPlacement) -> None:
        """Add a worker, which is ready now."""
        self._places[place.worker] = [place]
        self.join(place.worker)

    def join(self, name: str) -> None:
        """A worker starts at its placement, unless it runs or was retired."""
        places = self._places.get(name)
        if places is None or name in self._workers:
            return
        node = self._nodes.setdefault(places[0].node, EmulatedNode())
        self._workers[name] = _EmulatedWorker(name, node, self._pools[places[0].stage], self._clock.now)
        for place in places:
            self._core.worker_joined(place.stage, name, place.node, self._clock.now)

    def lose(self, name: str) -> None:
        """A worker is lost, with all batches that still need it."""
        worker = self._workers.pop(name, None)
        if worker is None:
            return
        worker.alive = False
        worker.until = self._clock.now
        if worker.running is not None:
            self._release(worker, worker.running)
        self._gone.append(worker)
        for batch_id in [batch.dispatch.batch_id for batch in self._needing(worker)]:
            del self._batches[batch_id]
        self._core.worker_lost(name, self._clock.now)

    def retire(self, name: str) -> None:
        """A worker gets no new batches, finishes those it has, and then leaves."""
        self._places.pop(name, None)
        if name in self._workers:
            self._core.worker_draining(name, self._clock.now)
            self._leave_when_done(name)

    def carry_out(self, dispatch: Dispatch) -> None:
        """Send a batch to the first worker of its path."""
        if dispatch.preempts is not None:
            self._stop(self._batches.pop(dispatch.preempts))
        workers = self._workers
        batch = _EmulatedBatch(dispatch, [workers[name] for name in dispatch.path])
        self._batches[dispatch.batch_id] = batch
        delay = self._delays.of(batch.size)
        if delay:
            self._clock.at(self._clock.now + delay, self._receive, batch)
        else:
            self._receive(batch)

    def idle_by_worker(self, horizon: int) -> dict[str, WorkerIdle]:
        """By worker, the share of its time until `horizon` without a batch."""
        busy: dict[str, int] = {}
        present: dict[str, int] = {}
        pools: dict[str, str] = {}
        for worker in (*self._gone, *self._workers.values()):
            until = horizon if worker.until is None else min(horizon, worker.until)
            if worker.since < until:
                pools[worker.name] = worker.pool
                busy[worker.name] = busy.get(worker.name, 0) + worker.busy_micros
                present[worker.name] = present.get(worker.name, 0) + until - worker.since
        return {name: WorkerIdle(pool, 1 - min(1.0, busy[name] / present[name])) for name, pool in pools.items()}

    def _needing(self, worker: _EmulatedWorker) -> list[_EmulatedBatch]:
        """The batches that are on a worker, or have it ahead on their path."""
        return [batch for batch in self._batches.values() if worker in batch.remaining_workers()]

    def _leave_when_done(self, name: str) -> None:
        worker = self._workers.get(name)
        if worker is None:
            return
        if self._needing(worker):
            self._clock.at(self._clock.now + _RETIREMENT_CHECK_MICROS, self._leave_when_done, name)
        else:
            self.lose(name)

    def _receive(self, batch: _EmulatedBatch) -> None:
        if batch.preempted:
            return
        worker = batch.path[batch.stage]
        heappush(worker.waiting, (batch.dispatch.starts[batch.stage], batch.dispatch.batch_id, batch))
        if worker.running is None:
            self._run_next(worker)

    def _run_next(self, worker: _EmulatedWorker) -> None:
        if worker.running is not None or not worker.waiting or not worker.alive:
            return
        now = self._clock.now
        start, _, batch = worker.waiting[0]
        if start > now:
            self._clock.at(start, self._run_next, worker)
            return
        heappop(worker.waiting)
        dispatch = batch.dispatch
        took = self._latencies[dispatch.module, dispatch.pipeline][batch.stage][batch.size - 1]
        if not self._exact:
            took = max(1, round(took * self._noise.factor(self._generator)))
        worker.running = batch
        worker.started = now
        self._clock.at(now + took, self._executed, worker, batch, took)

    def _executed(self, worker: _EmulatedWorker, batch: _EmulatedBatch, took: int) -> None:
        if worker.running is not batch:
            return
        now, batch_id = self._clock.now, batch.dispatch.batch_id
        self._release(worker, batch)
        if self._noise.fails(self._generator):
            self._batches.pop(batch_id, None)
            self._core.failed(batch_id, now, "emulated failure")
        else:
            self._core.completed(batch_id, batch.stage, now, took)
            if batch_id in self._batches:
                self._continue(batch)
        if worker.waiting:
            self._run_next(worker)

    def _stop(self, batch: _EmulatedBatch) -> None:
        """The batch is preempted on its worker, or while it is being sent there."""
        worker = batch.path[batch.stage]
        if worker.running is batch:
            self._release(worker, batch)
        worker.waiting = [entry for entry in worker.waiting if entry[2] is not batch]
        heapify(worker.waiting)
        batch.preempted = True

    def _release(self, worker: _EmulatedWorker, batch: _EmulatedBatch) -> None:
        """The worker is done with the batch: it was executed, preempted, or lost with the worker."""
        now, dispatch = self._clock.now, batch.dispatch
        worker.running = None
        worker.busy_micros += now - worker.started
        if self._record is not None:
            ref = StageRef(dispatch.module, dispatch.pipeline, batch.stage)
            self._record(BatchExecution(worker.name, *ref, dispatch.batch_id, batch.size, worker.started, now))

    def _continue(self, batch: _EmulatedBatch) -> None:
        """Send the batch to its next stage, or return its answer."""
        dispatch = batch.dispatch
        if batch.stage == len(batch.path) - 1:
            del self._batches[dispatch.batch_id]
            self._answered(dispatch)
            return
        start = dispatch.transfer_starts[batch.stage]
        batch.stage += 1
        if start > self._clock.now:
            self._clock.at(start, self._send, batch)
        else:
            self._send(batch)

    def _send(self, batch: _EmulatedBatch) -> None:
        dispatch = batch.dispatch
        micros = self._transfers[dispatch.module, dispatch.pipeline][batch.stage - 1][batch.size - 1]
        sender, receiver = batch.path[batch.stage - 1], batch.path[batch.stage]
        self._network.send(sender.node, receiver.node, micros, self._received, batch, self._clock.now)

    def _received(self, batch: _EmulatedBatch, sent: int) -> None:
        """A batch has come from the stage before."""
        now, batch_id = self._clock.now, batch.dispatch.batch_id
        if batch_id in self._batches:
            self._core.transferred(batch_id, batch.stage, now, now - sent)
        self._receive(batch)
