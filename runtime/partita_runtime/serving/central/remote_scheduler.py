"""A dispatcher's scheduler where several frontends share their replicas: the coordinator decides.

It keeps everything that the coordinator needs to know, so a coordinator that was restarted can learn it again. While
there is no coordinator, dispatched batches are finished, and sub-requests wait for as long as their deadlines allow.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from partita_runtime.scheduling.events import Action, Dispatch, Drop, DropReason, StageRef
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.serving.central.coordinator_link import CoordinatorFinder, CoordinatorLink
from partita_runtime.serving.central.messages import (
    BatchDelays,
    BatchDispatched,
    BatchFailed,
    BatchTransferred,
    CoordinatorMessage,
    Decisions,
    FrontendEvents,
    Register,
    Registered,
    StageCompleted,
    SubRequestArrived,
    WorkerBusy,
    WorkerJoined,
    WorkerLeft,
)
from partita_runtime.serving.dispatch.scheduler import Alarm, CarryOut
from partita_runtime.serving.dispatch.unfinished_work import executions_of, remaining_executions
from partita_runtime.serving.transport.clock import now_micros
from partita_runtime.serving.transport.wire import MAX_REASON, WireError


@dataclass
class _PendingSubRequest:
    """A sub-request whose client waits."""

    module: str
    deadline: int
    call: int
    batch_id: int | None = None
    """The batch that it is in; None while it waits for one."""


@dataclass
class _UnfinishedBatch:
    """A batch that was dispatched and has not ended."""

    dispatch: Dispatch
    stages_done: int = 0
    unknown: bool = False
    """Whether the coordinator that dispatched it is gone; no other coordinator knows the batch."""


@dataclass
class _Unsent:
    """Events that the coordinator has not received, as `FrontendEvents` has them."""

    delays: BatchDelays | None = None
    workers_joined: list[WorkerJoined] = field(default_factory=list)
    workers_busy: list[WorkerBusy] = field(default_factory=list)
    arrived: list[SubRequestArrived] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    completed: list[StageCompleted] = field(default_factory=list)
    transferred: list[BatchTransferred] = field(default_factory=list)
    failed: list[BatchFailed] = field(default_factory=list)
    workers_draining: list[str] = field(default_factory=list)
    workers_left: list[WorkerLeft] = field(default_factory=list)
    workers_lost: list[str] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

    def message(self, sent: int) -> FrontendEvents:
        """All of them. They are of this process, so they are not validated again."""
        return FrontendEvents.model_construct(
            sent=sent,
            delays=self.delays,
            workers_joined=tuple(self.workers_joined),
            workers_busy=tuple(self.workers_busy),
            arrived=tuple(self.arrived),
            cancelled=tuple(self.cancelled),
            completed=tuple(self.completed),
            transferred=tuple(self.transferred),
            failed=tuple(self.failed),
            workers_draining=tuple(self.workers_draining),
            workers_left=tuple(self.workers_left),
            workers_lost=tuple(self.workers_lost),
            lost=tuple(self.lost),
        )


class RemoteScheduler:
    """Sends events to the coordinator, one message for each turn of the event loop (a `scheduler.Scheduler`)."""

    def __init__(self, finder: CoordinatorFinder, plan: SchedulingPlan, name: str, carry_out: CarryOut) -> None:
        self._plan = plan
        self._name = name
        self._carry_out = carry_out
        self._least = {module.name: _least_micros(plan, module.name) for module in plan.modules}
        self._executions = executions_of(plan)
        self._delays = BatchDelays()
        self._workers: dict[str, dict[StageRef, str]] = {}
        """Workers that take batches: of which stages, and their node."""
        self._sub_requests: dict[int, _PendingSubRequest] = {}
        self._batches: dict[int, _UnfinishedBatch] = {}
        self._next_batch = 0
        self._unsent = _Unsent()
        self._last_moments: list[tuple[int, int]] = []
        """While the coordinator is away: a heap of (when to give up, sub-request)."""
        self._registered = False
        self._alarm = Alarm(self._ring)
        self._link = CoordinatorLink(finder, self)

    @property
    def ready(self) -> bool:
        """Whether the coordinator schedules for this frontend."""
        return self._registered

    def now(self) -> int:
        """The time."""
        return now_micros()

    def wake(self) -> None:
        """Send the events to the coordinator at the end of this turn of the event loop."""
        self._alarm.wake()

    def tick(self) -> None:
        """Send a message even if nothing has happened: it says that this frontend is alive."""
        self._link.tick()
        self.wake()

    def close(self) -> None:
        """Disconnect from the coordinator."""
        self._alarm.silence()
        self._link.close()

    def signals(self) -> None:
        """None: the coordinator has the counters."""

    # What happens.

    def set_delays(self, ctrl_micros: int, per_request_micros: int) -> None:
        """The delays to allow for a batch's way to its first stage have changed."""
        delays = BatchDelays(ctrl_micros, per_request_micros)
        if self._delays != delays:
            self._delays = self._unsent.delays = delays

    def worker_joined(self, stage: StageRef, worker: str, node: str, now: int) -> None:
        """A worker takes batches of a stage."""
        self._workers.setdefault(worker, {})[stage] = node
        self._unsent.workers_joined.append(WorkerJoined(*stage, worker, node))

    def worker_draining(self, worker: str, now: int) -> None:
        """A worker takes no more batches."""
        self._workers.pop(worker, None)
        self._unsent.workers_draining.append(worker)

    def worker_lost(self, worker: str, now: int) -> None:
        """This frontend cannot reach a worker any more; `lost` says which batches are lost with it."""
        self._workers.pop(worker, None)
        self._unsent.workers_lost.append(worker)

    def worker_busy(self, worker: str, until: int, now: int) -> None:
        """A worker has a batch that another scheduler decided, planned to end at `until`."""
        if self._registered and worker in self._workers:
            self._unsent.workers_busy.append(WorkerBusy(worker, until))
            self.wake()

    def worker_left(self, stage: StageRef, worker: str, now: int) -> None:
        """A worker takes no more batches of one stage from this frontend."""
        self._workers.get(worker, {}).pop(stage, None)
        self._unsent.workers_left.append(WorkerLeft(*stage, worker))

    def arrive(self, request_id: int, module: str, deadline: int, now: int, call: int) -> None:
        """A sub-request of a call waits for a batch."""
        self._sub_requests[request_id] = _PendingSubRequest(module, deadline, call)
        self._wait(request_id, now)

    def cancel(self, request_id: int, now: int) -> None:
        """A sub-request's client has left."""
        pending = self._sub_requests.pop(request_id, None)
        if pending is not None and not self._in_unknown_batch(pending):
            self._unsent.cancelled.append(request_id)
            self.wake()

    def completed(self, batch_id: int, stage: int, now: int, took: int | None = None) -> None:
        """A batch left a stage, where it ran for `took` microseconds."""
        batch = self._batches.get(batch_id)
        if batch is None:
            return
        batch.stages_done = stage + 1
        if not batch.unknown:
            self._unsent.completed.append(StageCompleted(batch_id, stage, now, took))
        if batch.stages_done == len(batch.dispatch.path):
            for request_id in self._end(batch):
                del self._sub_requests[request_id]

    def transferred(self, batch_id: int, stage: int, now: int, took: int | None = None) -> None:
        """A batch arrived from the stage before, and was under way for `took` microseconds."""
        batch = self._batches.get(batch_id)
        if batch is not None and not batch.unknown:
            self._unsent.transferred.append(BatchTransferred(batch_id, stage, now, took))

    def failed(self, batch_id: int, now: int, reason: str = "") -> None:
        """A batch could not be run; the coordinator tries its sub-requests once more."""
        batch = self._batches.get(batch_id)
        if batch is not None:
            if not batch.unknown:
                self._unsent.failed.append(BatchFailed(batch_id, reason[:MAX_REASON]))
            self._queue_again(batch, now)

    def lost(self, batch_id: int, now: int) -> None:
        """A batch was lost with a worker; its sub-requests are queued again."""
        batch = self._batches.get(batch_id)
        if batch is not None:
            if not batch.unknown:
                self._unsent.lost.append(batch_id)
            self._queue_again(batch, now)

    def _queue_again(self, batch: _UnfinishedBatch, now: int) -> None:
        """The coordinator that dispatched the batch queues its sub-requests again; another one has to learn of them."""
        for request_id in self._end(batch):
            self._sub_requests[request_id].batch_id = None
            if batch.unknown:
                self._wait(request_id, now)

    def _end(self, batch: _UnfinishedBatch) -> list[int]:
        """Forget a batch; the ids of its sub-requests whose clients still wait."""
        batch_id = batch.dispatch.batch_id
        del self._batches[batch_id]
        pending = self._sub_requests
        return [r for r in batch.dispatch.request_ids if r in pending and pending[r].batch_id == batch_id]

    def _wait(self, request_id: int, now: int) -> None:
        pending = self._sub_requests[request_id]
        if self._registered:
            arrived = SubRequestArrived(request_id, pending.module, pending.deadline, now, pending.call)
            self._unsent.arrived.append(arrived)
        else:
            heappush(self._last_moments, (self._last_moment(pending), request_id))
        self.wake()

    def _last_moment(self, pending: _PendingSubRequest) -> int:
        return pending.deadline - self._least.get(pending.module, 0)

    def _in_unknown_batch(self, pending: _PendingSubRequest) -> bool:
        return pending.batch_id is not None and self._batches[pending.batch_id].unknown

    # What the coordinator sends (coordinator_link.CoordinatorListener).

    def introduction(self) -> Register:
        """Registers for this plan."""
        return Register(frontend=self._name, plan=self._plan, next_batch=self._next_batch)

    def heard(self, message: CoordinatorMessage) -> None:
        """The coordinator has registered this frontend, or has decided."""
        match message:
            case Registered():
                self._begin()
            case Decisions() if self._registered:
                actions = [*self._drops(message), *map(self._dispatched, message.batches)]
                self._carry_out(actions, message.due, message.late)
            case _:
                raise WireError(f"a {message.kind} message is not expected here")

    def away(self) -> None:
        """The coordinator is away: the batches that it dispatched are finished without it."""
        self._registered = False
        self._unsent = _Unsent()
        for batch in self._batches.values():
            batch.unknown = True
        self._last_moments = [(self._last_moment(p), r) for r, p in self._sub_requests.items() if p.batch_id is None]
        heapify(self._last_moments)
        self.wake()

    def _begin(self) -> None:
        """Send the whole state to a coordinator that knows nothing yet."""
        now = now_micros()
        self._registered = True
        self._last_moments = []
        self._unsent = _Unsent(
            delays=self._delays,
            workers_joined=[
                WorkerJoined(*stage, worker, node)
                for worker, stages in self._workers.items()
                for stage, node in stages.items()
            ],
            workers_busy=sorted(self._busy(), key=lambda busy: busy.until),
            arrived=[
                SubRequestArrived(r, p.module, p.deadline, now, p.call)
                for r, p in self._sub_requests.items()
                if p.batch_id is None
            ],
        )
        self.wake()

    def _busy(self) -> Iterable[WorkerBusy]:
        """Workers that batches of an earlier coordinator still need."""
        for batch in self._batches.values():
            for worker, until in remaining_executions(batch.dispatch, batch.stages_done, self._executions):
                yield WorkerBusy(worker, until)

    def _dispatched(self, batch: BatchDispatched) -> Dispatch:
        dispatch = Dispatch(
            self._next_batch,
            batch.module,
            batch.pipeline,
            batch.request_ids,
            batch.path,
            batch.starts,
            batch.finish,
            batch.deadline,
            batch.transfer_starts,
            links_free=batch.links_free,
            slack=batch.slack,
        )
        self._next_batch += 1
        self._batches[dispatch.batch_id] = _UnfinishedBatch(dispatch)
        for request_id in batch.request_ids:
            if request_id in self._sub_requests:
                self._sub_requests[request_id].batch_id = dispatch.batch_id
        return dispatch

    def _drops(self, decisions: Decisions) -> list[Action]:
        return [
            Drop(drop.id, drop.module, drop.reason, drop.detail)
            for drop in decisions.drops
            if self._sub_requests.pop(drop.id, None) is not None
        ]

    def _ring(self, _due: int) -> int | None:
        now = now_micros()
        if self._registered:
            events, self._unsent = self._unsent, _Unsent()
            self._link.send(events.message(now))
            return None
        return self._give_up(now)

    def _give_up(self, now: int) -> int | None:
        """Drop sub-requests that cannot wait for the coordinator any longer; when to check again."""
        drops = []
        moments = self._last_moments
        while moments and moments[0][0] < now:
            request_id = heappop(moments)[1]
            pending = self._sub_requests.get(request_id)
            if pending is not None and pending.batch_id is None:
                del self._sub_requests[request_id]
                drops.append(Drop(request_id, pending.module, DropReason.NO_COORDINATOR))
        if drops:
            self._carry_out(drops, now, 0)
        return moments[0][0] + 1 if moments else None


def _least_micros(plan: SchedulingPlan, name: str) -> int:
    """The shortest time in which the profile serves a request of a module."""
    (module,) = [module for module in plan.modules if module.name == name]
    return min((sum(s.latency_micros[0] for s in p.stages) for p in module.pipelines), default=0)
