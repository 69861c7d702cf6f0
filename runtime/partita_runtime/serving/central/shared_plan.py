"""One plan's replicas shared by several frontends: one scheduling core with a queue for each frontend and module. Pure.

A frontend's share of a module is a module to the core, with the same pipelines on the same workers. So a batch always
belongs to one frontend, which has all of its tensors, and no worker is reserved twice.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Dispatch, Drop, StageRef
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.signals import CoreSignals
from partita_runtime.serving.central.messages import (
    BatchDelays,
    BatchDispatched,
    Decisions,
    FrontendEvents,
    Register,
    StageCompleted,
    SubRequestArrived,
    SubRequestDropped,
)
from partita_runtime.serving.central.shared_signals import added, share_of, without_modules, without_workers
from partita_runtime.serving.transport.clock_offset import ClockOffset


@dataclass(eq=False)
class _RegisteredFrontend:
    """One frontend, and how its ids of requests and batches map to those of the core."""

    name: str
    next_batch: int
    clock: ClockOffset = field(default_factory=ClockOffset)
    delays: BatchDelays = field(default_factory=BatchDelays)
    requests: dict[int, int] = field(default_factory=dict)
    """Ids in the core, by the frontend's."""
    batches: dict[int, int] = field(default_factory=dict)
    """Ids in the core, by the frontend's."""
    workers: set[str] = field(default_factory=set)


@dataclass(eq=False)
class _SharedBatch:
    """A dispatched batch."""

    frontend: _RegisteredFrontend
    stages: int
    request_ids: tuple[int, ...]
    """In the core."""


class SharedPlan:
    """The core of one plan, and the frontends that are registered for it.

    `now` is on the coordinator's clock (microseconds).
    """

    def __init__(self, plan: SchedulingPlan, now: int) -> None:
        self.plan = plan
        self._core = SchedulingCore(_shared(plan, ()))
        self._frontends: dict[str, _RegisteredFrontend] = {}
        self._modules: dict[str, tuple[_RegisteredFrontend, str]] = {}
        """By a module's name in the core: the frontend whose share it is, and its name in the plan."""
        self._requests: dict[int, tuple[_RegisteredFrontend, int]] = {}
        """By a request's id in the core: its frontend, and its id there."""
        self._batches: dict[int, _SharedBatch] = {}
        self._next_request = 0
        self._delays = BatchDelays()
        self._past = without_modules(self._core.signals(now))
        """The counters of frontends that have left."""

    def __len__(self) -> int:
        """How many frontends are registered."""
        return len(self._frontends)

    def __contains__(self, frontend: str) -> bool:
        """Whether this frontend is registered."""
        return frontend in self._frontends

    def register(self, message: Register, now: int) -> None:
        """Register a frontend, with nothing waiting. Raises ValueError if its id is registered already."""
        if message.frontend in self._frontends:
            raise ValueError(f"frontend {message.frontend} is registered already")
        self._frontends[message.frontend] = _RegisteredFrontend(message.frontend, message.next_batch)
        self._arrange(now)

    def leave(self, name: str, now: int) -> None:
        """A frontend is gone: its waiting requests are forgotten, and its dispatched batches end as reserved."""
        frontend = self._frontends.pop(name)
        for request_id in frontend.requests.values():
            self._core.cancel(request_id, now)
            del self._requests[request_id]
        for batch_id in frontend.batches.values():
            self._core.unreported(batch_id, now)
            del self._batches[batch_id]
        for worker in [*frontend.workers]:
            self._worker_lost(frontend, worker, now)
        share = share_of(self._core.signals(now), self._names_of(frontend))
        self._past = added(self._past, without_workers(share))
        self._arrange(now)
        self._keep_delays()

    def handle(self, name: str, events: FrontendEvents, now: int) -> None:
        """Handle what happened at a frontend. Raises ValueError or KeyError for events that are impossible."""
        frontend, core = self._frontends[name], self._core
        frontend.clock.observe(events.sent, now)
        offset = frontend.clock.micros
        if events.delays is not None:
            frontend.delays = events.delays
            self._keep_delays()
        for joined in events.workers_joined:
            ref = StageRef(_share(joined.module, frontend), joined.pipeline, joined.stage)
            core.worker_joined(ref, joined.worker, joined.node, now)
            frontend.workers.add(joined.worker)
        for busy in events.workers_busy:
            core.worker_busy(busy.worker, busy.until + offset, now)
        for arrived in events.arrived:
            self._arrived(frontend, arrived, offset)
        for request_id in events.cancelled:
            if request_id in frontend.requests:
                known = frontend.requests.pop(request_id)
                del self._requests[known]
                core.cancel(known, now)
        for completed in events.completed:
            self._completed(frontend, completed, offset)
        for sent in events.transferred:
            if sent.batch in frontend.batches:
                core.transferred(frontend.batches[sent.batch], sent.stage, sent.at + offset, sent.took)
        for failed in events.failed:
            if failed.batch in frontend.batches:
                core.failed(self._end(frontend, failed.batch), now, failed.reason)
        for worker in events.workers_draining:
            core.worker_draining(worker, now)
        for left in events.workers_left:
            core.worker_left(StageRef(_share(left.module, frontend), left.pipeline, left.stage), left.worker, now)
        for worker in events.workers_lost:
            self._worker_lost(frontend, worker, now)
        for batch_id in events.lost:
            if batch_id in frontend.batches:
                core.lost(self._end(frontend, batch_id), now)

    def advance(self, due: int, late: int = 0) -> dict[str, Decisions]:
        """Decide everything that is due, `late` microseconds too late; the decisions for each frontend."""
        drops: defaultdict[_RegisteredFrontend, list[SubRequestDropped]] = defaultdict(list)
        batches: defaultdict[_RegisteredFrontend, list[BatchDispatched]] = defaultdict(list)
        for action in self._core.advance(due):
            if isinstance(action, Drop):
                if action.request_id in self._requests:  # else it was cancelled in the meantime
                    frontend, own_id = self._requests.pop(action.request_id)
                    del frontend.requests[own_id]
                    module = self._modules[action.module][1]
                    drops[frontend].append(SubRequestDropped(own_id, module, action.reason, action.detail))
            else:
                frontend, module = self._modules[action.module]
                batches[frontend].append(self._dispatched(frontend, module, action))
        return {
            frontend.name: Decisions(
                due=due - frontend.clock.micros,
                late=late,
                drops=tuple(drops[frontend]),
                batches=tuple(batches[frontend]),
            )
            for frontend in {**batches, **drops}
        }

    def next_wakeup(self) -> int | None:
        """When to call `advance` if nothing happens before."""
        return self._core.next_wakeup()

    @property
    def delay(self) -> int:
        """What the core allows for a batch's way (microseconds), whatever its size."""
        return self._delays.control

    def signals(self, now: int) -> CoreSignals:
        """The counters of all frontends together, since the first one registered."""
        whole = self._core.signals(now)
        shares = [share_of(whole, self._names_of(frontend)) for frontend in self._frontends.values()]
        return reduce(added, shares, self._past)

    def _arrange(self, now: int) -> None:
        """Give the core a share of each module for each frontend."""
        frontends = [*self._frontends.values()]
        self._modules = {_share(m.name, f): (f, m.name) for m in self.plan.modules for f in frontends}
        self._core.switch_plan(_shared(self.plan, frontends), now)

    def _names_of(self, frontend: _RegisteredFrontend) -> dict[str, str]:
        return {_share(module.name, frontend): module.name for module in self.plan.modules}

    def _keep_delays(self) -> None:
        """Allow for the delays of the frontend whose batches take longest."""
        delays = max((frontend.delays for frontend in self._frontends.values()), default=BatchDelays())
        if delays != self._delays:
            self._delays = delays
            self._core.set_delays(delays.control, delays.per_request)

    def _arrived(self, frontend: _RegisteredFrontend, arrived: SubRequestArrived, offset: int) -> None:
        if arrived.id in frontend.requests:
            raise ValueError(f"request {arrived.id} has arrived already")
        request_id = self._next_request
        self._next_request += 1
        module = _share(arrived.module, frontend)
        self._core.arrive(request_id, module, arrived.deadline + offset, arrived.at + offset, arrived.call)
        frontend.requests[arrived.id] = request_id
        self._requests[request_id] = (frontend, arrived.id)

    def _dispatched(self, frontend: _RegisteredFrontend, module: str, dispatch: Dispatch) -> BatchDispatched:
        frontend.batches[frontend.next_batch] = dispatch.batch_id
        frontend.next_batch += 1
        self._batches[dispatch.batch_id] = _SharedBatch(frontend, len(dispatch.path), dispatch.request_ids)
        offset = frontend.clock.micros
        return BatchDispatched(
            module=module,
            pipeline=dispatch.pipeline,
            request_ids=tuple([self._requests[r][1] for r in dispatch.request_ids]),
            path=dispatch.path,
            starts=tuple([start - offset for start in dispatch.starts]),
            finish=dispatch.finish - offset,
            deadline=dispatch.deadline - offset,
            transfer_starts=tuple([start - offset for start in dispatch.transfer_starts]),
            links_free=tuple([since - offset for since in dispatch.links_free]),
            slack=dispatch.slack,
        )

    def _completed(self, frontend: _RegisteredFrontend, completed: StageCompleted, offset: int) -> None:
        known = frontend.batches.get(completed.batch)
        if known is None:
            return
        batch = self._batches[known]
        self._core.completed(known, completed.stage, completed.at + offset, completed.took)
        if completed.stage == batch.stages - 1:
            self._end(frontend, completed.batch)
            for request_id in batch.request_ids:
                if request_id in self._requests:
                    _, own_request = self._requests.pop(request_id)
                    del frontend.requests[own_request]

    def _end(self, frontend: _RegisteredFrontend, own_id: int) -> int:
        known = frontend.batches.pop(own_id)
        del self._batches[known]
        return known

    def _worker_lost(self, frontend: _RegisteredFrontend, worker: str, now: int) -> None:
        """A frontend cannot reach a worker any more; it is lost if no other frontend can."""
        frontend.workers.discard(worker)
        if not any(worker in other.workers for other in self._frontends.values()):
            self._core.worker_lost(worker, now)
            return
        for module in self.plan.modules:
            for pipeline in module.pipelines:
                for stage in range(len(pipeline.stages)):
                    self._core.worker_left(StageRef(_share(module.name, frontend), pipeline.name, stage), worker, now)


def _share(module: str, frontend: _RegisteredFrontend) -> str:
    return f"{module}@{frontend.name}"


def _shared(plan: SchedulingPlan, frontends: Sequence[_RegisteredFrontend]) -> SchedulingPlan:
    """The plan with a module for every frontend's share of each of its own."""
    modules = [module.model_copy(update={"name": _share(module.name, f)}) for module in plan.modules for f in frontends]
    return plan.model_copy(update={"modules": tuple(modules)})
