"""Sends the batches that the scheduler decides to replicas over streams, and reports their outcomes to it."""

import asyncio
import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from partita_runtime.execution.executor import Array
from partita_runtime.logs import concerning
from partita_runtime.scheduling.events import Action, Dispatch, Drop, DropReason, StageRef
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.signals import CoreSignals
from partita_runtime.serving.deploy.directory import Announcement
from partita_runtime.serving.dispatch.delays import Margins
from partita_runtime.serving.dispatch.links import Links
from partita_runtime.serving.dispatch.scheduler import MakeScheduler
from partita_runtime.serving.dispatch.unfinished_work import executions_of, remaining_executions
from partita_runtime.serving.transport.clock import now_micros
from partita_runtime.serving.transport.transport import TCP, Transport
from partita_runtime.serving.transport.wire import (
    BatchAnswer,
    Failed,
    Lost,
    Report,
    Reserve,
    RunBatch,
    WireError,
    Withdraw,
    tensor_header,
)

logger = logging.getLogger(__name__)

OVERDUE_MICROS: Final = 1_000_000
"""A batch counts as lost this long, plus twice the SLO, after its planned end."""


class SubRequests(Protocol):
    """The sub-requests that batches are made of."""

    def batch(self, sub_ids: Sequence[int], any_size: bool) -> Mapping[int, Sequence[Array]]:
        """The inputs of those sub-requests of a batch that have not ended, without a batch dimension, in order.

        They have one size: that of their size class, or with `any_size` one that all fit into.
        """

    def answered(self, sub_id: int, outputs: list[Array], now: int) -> None:
        """The model's outputs for a sub-request, without a batch dimension."""

    def dropped(self, drop: Drop, now: int) -> None:
        """The scheduler dropped a sub-request."""


class BatchObserver(Protocol):
    """Observes dispatched batches (`tracing.SubRequestTraces`)."""

    def sent(self, dispatch: Dispatch, sub_ids: Sequence[int], now: int) -> None:
        """A batch of these sub-requests was sent."""

    def ran(self, batch_id: int, stage: int, waited: int, ran: int, now: int) -> None:
        """A stage reports how long a batch waited and ran there (microseconds)."""

    def over(self, batch_id: int, now: int) -> None:
        """A batch is answered, lost or failed."""


@dataclass
class _SentBatch:
    """A dispatched batch that has not ended."""

    dispatch: Dispatch
    replicas: tuple[str, ...]
    """The replica of each stage."""
    due: int
    """When it was due to be sent; the event loop's timers may be late."""
    sub_ids: tuple[int, ...]
    """Its sub-requests, in order."""
    stages_done: int = 0
    """Stages that have reported it."""
    reported: int = 0
    """When the last of these reports came; the stage has sent the batch on at the same time."""
    holder: int = 0
    """The last stage whose replica is known to have the batch, which is lost with that replica or a later one."""

    def needs(self, replica: str) -> bool:
        """Whether the batch is lost if this replica is lost."""
        return replica in self.replicas[self.holder :]


class Dispatcher:
    """The links to the replicas of one plan, and the dispatched batches. Use it on one event loop."""

    def __init__(
        self,
        plan: SchedulingPlan,
        slo_micros: int,
        sub_requests: SubRequests,
        make_scheduler: MakeScheduler,
        observer: BatchObserver | None = None,
        transport: Transport = TCP,
        reserve: bool = True,
    ) -> None:
        """With `reserve`, replicas learn what the scheduler has reserved, and keep to it."""
        self.id = uuid.uuid4().hex
        self.margins = Margins(slo_micros)
        self._plan = plan
        self._slo_micros = slo_micros
        self._sub_requests = sub_requests
        self._observer = observer
        self._reserves = reserve
        self._links = Links(self.id, self, transport)
        self._joined: dict[str, Announcement] = {}
        """Connected replicas that take batches, or drain, by id."""
        self._replicas: dict[tuple[StageRef, str], str] = {}
        """Their ids by stage and worker. A worker that several models share has a replica for each of them."""
        self._core = make_scheduler(plan, self.id, self._carry_out)
        self._sending_micros = 0
        """Time kept free for a batch's way to its first stage, whatever its size."""
        self.answering_micros = 0
        """Time kept free between a request's last result and its response."""
        self._ready = {ref: set[str]() for ref, _ in plan.stages()}
        """Replicas that take batches, by stage."""
        self._width = 0
        self._leaving: set[str] = set()
        """Draining replicas: disconnected once they have answered all their batches."""
        self._batches: dict[int, _SentBatch] = {}
        self._executions = executions_of(plan)
        self._neighbours: tuple[Dispatcher, ...] = ()
        self._wake, self.now = self._core.wake, self._core.now
        self._keep_margins(now_micros())

    def connect(self, replicas: Iterable[Announcement]) -> None:
        """Connect to the replicas that run this plan and are not connected yet."""
        self._links.update(r for r in replicas if r.plan == self._plan.name and r.ref in self._ready)

    def ready_replicas(self) -> dict[StageRef, int]:
        """How many replicas take batches, for every stage of the plan."""
        return {ref: len(workers) for ref, workers in self._ready.items()}

    @property
    def can_serve(self) -> bool:
        """Whether every module has a pipeline with a replica of each of its stages."""
        return self._width > 0

    @property
    def width(self) -> int:
        """Samples that fit at once if each ready replica runs a full batch, at the module that takes fewest."""
        return self._width

    @property
    def scheduled(self) -> bool:
        """Whether the scheduler is there."""
        return self._core.ready

    def signals(self) -> CoreSignals | None:
        """The scheduler's counters; None if the coordinator has them."""
        return self._core.signals()

    def arrive(self, sub_id: int, module: str, deadline: int, now: int, call: int) -> None:
        """A sub-request of a call has arrived for a model."""
        self._core.arrive(sub_id, module, deadline, now, call)
        self._wake()

    def cancel(self, sub_id: int, now: int) -> None:
        """The client of a sub-request has left, or its request has failed."""
        self._core.cancel(sub_id, now)

    def tick(self) -> None:
        """To be called a few times a second: updates delays, and gives up batches that no replica reports."""
        now = self.now()
        self._keep_margins(now)
        self._core.tick()
        for batch in [*self._batches.values()]:
            if now - batch.dispatch.finish > OVERDUE_MICROS + 2 * self._slo_micros:
                stuck = batch.replicas[max(batch.stages_done, batch.holder)]
                batch_id = batch.dispatch.batch_id
                logger.warning("batch %d is overdue at replica %s", batch_id, stuck, extra=self._about(batch.dispatch))
                self._links.close_one(stuck)
        self._links.ping(now)
        self._wake()

    def share_with(self, neighbours: Iterable["Dispatcher"]) -> None:
        """Inform dispatchers that use the same replicas, each with its own scheduler, of the batches of this one."""
        known, self._neighbours = self._neighbours, tuple(neighbours)
        now = now_micros()
        for neighbour in self._neighbours:
            if neighbour not in known:
                for batch in self._batches.values():
                    neighbour.occupy(remaining_executions(batch.dispatch, batch.stages_done, self._executions), now)

    def occupy(self, workers: Iterable[tuple[str, int]], now: int) -> None:
        """Another dispatcher uses these workers, each until a time."""
        for worker, until in workers:
            self._core.worker_busy(worker, until, now)

    def close(self) -> None:
        """Disconnect from the replicas."""
        self._links.close()
        self._core.close()

    # What the replicas send (links.LinkListener).

    def joined(self, replica: Announcement) -> None:
        """A replica takes batches."""
        self._joined[replica.replica] = replica
        self._replicas[replica.ref, replica.worker] = replica.replica
        self._core.worker_joined(replica.ref, replica.worker, replica.node, now_micros())
        self._ready[replica.ref].add(replica.replica)
        self._width = self._plan.width(self._ready)
        self._wake()

    def draining(self, replica: str) -> None:
        """A replica takes no more batches; it is disconnected once it has answered those that it has."""
        self._leaving.add(replica)
        self._rest(replica, now_micros())
        self._disconnect_drained(replica)
        self._wake()

    def lost(self, replica: str) -> None:
        """A replica is gone, and so are the batches that need it."""
        left = self._joined.pop(replica)
        del self._replicas[left.ref, left.worker]
        self._forget(replica)
        self._leaving.discard(replica)
        now = now_micros()
        batches = [batch for batch in self._batches.values() if replica in batch.replicas]
        for batch in batches:
            stage = batch.replicas.index(replica)
            if stage < batch.holder and stage >= batch.stages_done:  # its report is lost with the replica
                self._core.completed(batch.dispatch.batch_id, stage, now, 0)
                batch.stages_done = stage + 1
        if any(other.worker == left.worker for other in self._joined.values()):
            self._core.worker_left(left.ref, left.worker, now)
        else:
            self._core.worker_lost(left.worker, now)
        for batch in batches:
            if batch.needs(replica):
                self._core.lost(batch.dispatch.batch_id, now)  # the replica had reported it, but not forwarded it
                self._ended(batch.dispatch.batch_id, now)
        self._wake()

    def admit_answer(self, replica: str, answer: BatchAnswer) -> None:
        """Refuse an answer with another number of rows than its batch; admit answers to batches that have ended."""
        batch = self._batches.get(answer.batch_id)
        rows = {tensor.shape[:1] for tensor in answer.tensors}
        if batch is not None and rows != {(len(batch.sub_ids),)}:
            raise WireError(f"replica {replica} answered a batch of {len(batch.sub_ids)} with rows {rows}")

    def taken(self, replica: str, batch_id: int, held: int) -> None:
        """A replica has received a batch, which no longer needs the replica of the stage before."""
        batch = self._batches.get(batch_id)
        if batch is not None and replica in batch.replicas:
            stage, now = batch.replicas.index(replica), self.now()
            if stage == batch.stages_done:
                self._core.transferred(batch_id, stage, now, max(0, now - batch.reported - held))
            self._passed_to(batch, stage)
            self._wake()

    def reported(self, replica: str, message: Report | BatchAnswer | Lost | Failed, tensors: list[Array]) -> None:
        """A stage has run a batch, or could not."""
        batch = self._batches.get(message.batch_id)
        if batch is None or replica not in batch.replicas:
            return
        now = self.now()
        stage = batch.replicas.index(replica)
        match message:
            case Report():
                self._stage_done(batch, stage, message, now)
            case BatchAnswer():
                self._stage_done(batch, stage, message, now)
                self._ended(message.batch_id, now)
                self._wake()  # the replica gets its next batch before the answers are sent
                asyncio.get_running_loop().call_soon(self._answer, batch, tensors, now)
            case Lost() if batch.holder > stage:
                return  # the next stage has received it after all
            case Lost():
                logger.warning("batch %d: %s", message.batch_id, message.reason, extra=self._about(batch.dispatch))
                self._core.lost(message.batch_id, now)
                self._ended(message.batch_id, now)
                self._reconnect(batch.replicas[stage + 1 :][:1], now)
            case Failed():
                self._core.failed(message.batch_id, now, message.reason)
                self._ended(message.batch_id, now)
        self._wake()

    def _answer(self, batch: _SentBatch, tensors: list[Array], now: int) -> None:
        for row, sub_id in enumerate(batch.sub_ids):
            self._sub_requests.answered(sub_id, [tensor[row] for tensor in tensors], now)

    def _reconnect(self, replicas: Iterable[str], now: int) -> None:
        """These replicas get no more batches until they are connected again."""
        for replica in replicas:
            self._rest(replica, now)
            self._links.close_one(replica)

    def _rest(self, replica: str, now: int) -> None:
        """The replica gets no new batches. Other models on its vGPU still do."""
        self._forget(replica)
        resting = self._joined.get(replica)
        if resting is not None and resting.vgpu is None:
            self._core.worker_draining(resting.worker, now)
        elif resting is not None:
            self._core.worker_left(resting.ref, resting.worker, now)

    def _stage_done(self, batch: _SentBatch, stage: int, message: Report | BatchAnswer, now: int) -> None:
        if self._observer is not None:
            self._observer.ran(message.batch_id, stage, message.waited_micros, message.ran_micros, now)
        if stage == 0:
            elsewhere = now - batch.due - message.waited_micros - message.ran_micros
            self.margins.sending.observe(len(batch.sub_ids), elsewhere, now)
        if stage >= batch.stages_done:  # reports of two replicas may arrive out of order
            self._core.completed(message.batch_id, stage, now, message.ran_micros)
            batch.stages_done = stage + 1
            batch.reported = now
        self._passed_to(batch, stage)

    def _passed_to(self, batch: _SentBatch, stage: int) -> None:
        passed = batch.replicas[batch.holder : stage]
        batch.holder = max(batch.holder, stage)
        for replica in passed:
            self._disconnect_drained(replica)

    def _about(self, dispatch: Dispatch) -> dict[str, object]:
        """The fields of a log line about a batch."""
        return concerning(plan=self._plan.name, module=dispatch.module, batch=dispatch.batch_id)

    def _forget(self, replica: str) -> None:
        for replicas in self._ready.values():
            replicas.discard(replica)
        self._width = self._plan.width(self._ready)

    # What the scheduler decides.

    def _keep_margins(self, now: int) -> None:
        self.answering_micros, _ = self.margins.answering.line(now)
        self._sending_micros, per_request = self.margins.sending.line(now)
        self._core.set_delays(self._sending_micros, per_request)

    def _carry_out(self, actions: Sequence[Action], due: int, late: int) -> None:
        for action in actions:
            if isinstance(action, Drop):
                if action.reason is DropReason.TOO_LATE:
                    self._dropped_late(late)
                self._sub_requests.dropped(action, due)
            else:
                self._dispatch(action, due)

    def _dropped_late(self, late: int) -> None:
        """Else an event loop that is always later than the margin would drop everything and measure nothing."""
        if late > self._sending_micros:
            self.margins.sending.observe(1, late, now_micros())

    def _dispatch(self, dispatch: Dispatch, due: int) -> None:
        refs = [StageRef(dispatch.module, dispatch.pipeline, stage) for stage in range(len(dispatch.path))]
        replicas = tuple([self._replicas.get(place, "") for place in zip(refs, dispatch.path, strict=True)])
        if not all(self._links.reaches(replica) for replica in replicas):
            self._core.lost(dispatch.batch_id, due)  # the coordinator did not know yet that a replica is lost
            self._wake()
            return
        # If a sub-request was dropped in the same decision, the others of its request have been cancelled.
        any_size = all(self._joined[replica].any_size for replica in replicas)
        samples = self._sub_requests.batch(dispatch.request_ids, any_size)
        batch = self._batches[dispatch.batch_id] = _SentBatch(dispatch, replicas, due, tuple(samples))
        for neighbour in self._neighbours:
            neighbour.occupy(remaining_executions(dispatch, 0, self._executions), due)
        if self._observer is not None:
            self._observer.sent(dispatch, tuple(samples), now_micros())
        try:
            self._send(batch, [*samples.values()])
        except WireError as error:
            self._core.failed(dispatch.batch_id, due, str(error))
            self._ended(dispatch.batch_id, now_micros())
            self._wake()

    def _send(self, batch: _SentBatch, samples: list[Sequence[Array]]) -> None:
        if not samples:
            raise WireError("all requests of the batch have ended")
        headers = tuple([tensor_header((len(samples), *tensor.shape), tensor.dtype) for tensor in samples[0]])
        first, *others = batch.replicas
        path = tuple([self._links.address(replica) for replica in others])
        message = RunBatch(batch_id=batch.dispatch.batch_id, frontend=self.id, path=path, tensors=headers)
        if others and self._reserves:
            self._reserve(batch)
        self._links.send(first, message, [row for rows in zip(*samples, strict=True) for row in rows])

    def _reserve(self, batch: _SentBatch) -> None:
        """Tell the replicas what is reserved. A batch of one stage needs no order: it is sent when it can start."""
        dispatch, sent = batch.dispatch, now_micros()
        sends_from = (*dispatch.links_free, 0)
        for replica, start, free in zip(batch.replicas, dispatch.starts, sends_from, strict=True):
            latest = start + max(0, dispatch.slack)
            reserved = Reserve(batch_id=dispatch.batch_id, sent=sent, start=start, latest=latest, sends_from=free)
            self._links.send(replica, reserved)

    def _ended(self, batch_id: int, now: int) -> None:
        batch = self._batches.pop(batch_id)
        for replica in batch.replicas[batch.stages_done :]:
            self._links.send(replica, Withdraw(batch_id=batch_id))
        if self._observer is not None:
            self._observer.over(batch_id, now)
        for replica in batch.replicas:
            self._disconnect_drained(replica)

    def _disconnect_drained(self, replica: str) -> None:
        if replica in self._leaving and not any(batch.needs(replica) for batch in self._batches.values()):
            self._links.close_one(replica)
