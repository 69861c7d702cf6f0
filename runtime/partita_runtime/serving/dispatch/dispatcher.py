"""Carries out what the scheduler decides, over streams to replicas, and tells it what becomes of that."""

import asyncio
import logging
import uuid
from collections.abc import Iterable, Sequence
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
from partita_runtime.serving.dispatch.scheduler import MakeScheduler, now_micros
from partita_runtime.serving.transport.transport import TCP, Carrier
from partita_runtime.serving.transport.wire import Answer, Batch, Failed, Report, Undelivered, WireError, tensor_header

logger = logging.getLogger(__name__)

OVERDUE_MICROS: Final = 1_000_000
"""A batch this long, and twice the SLO, after its planned end counts as lost."""


class SubRequests(Protocol):
    """Whose batches are dispatched."""

    def tensor(self, sub_id: int) -> Array | None:
        """What a sub-request works on, without a batch dimension; None if nobody waits for it any more."""

    def answered(self, sub_id: int, outputs: list[Array], now: int) -> None:
        """A sub-request's model gave these outputs, without a batch dimension."""

    def dropped(self, drop: Drop, now: int) -> None:
        """The core gave a sub-request up."""


class BatchObserver(Protocol):
    """Who is told how batches go (`tracing.SubRequestTraces`)."""

    def sent(self, dispatch: Dispatch, sub_ids: Sequence[int], now: int) -> None:
        """A batch of these sub-requests is on its way."""

    def ran(self, batch_id: int, stage: int, waited: int, ran: int, now: int) -> None:
        """A stage reports that a batch waited and ran there for so many microseconds."""

    def over(self, batch_id: int, now: int) -> None:
        """A batch is answered, or lost."""


@dataclass
class _Flight:
    """A batch that has been sent."""

    dispatch: Dispatch
    replicas: tuple[str, ...]
    """The replica of each stage."""
    due: int
    """When it should have been sent; timers are late at times."""
    sub_ids: tuple[int, ...]
    """What it holds, in order."""
    stages_done: int = 0
    """Stages that have reported it."""
    holder: int = 0
    """The stage whose replica has it, as far as is known: without that one, and those after it, it is lost."""

    def needs(self, replica: str) -> bool:
        """Whether it is lost with this replica."""
        return replica in self.replicas[self.holder :]


class Dispatcher:
    """The links to the replicas of one plan, and the batches under way. Lives on one event loop."""

    def __init__(
        self,
        plan: SchedulingPlan,
        slo_micros: int,
        sub_requests: SubRequests,
        make_scheduler: MakeScheduler,
        observer: BatchObserver | None = None,
        carrier: Carrier = TCP,
    ) -> None:
        self.id = uuid.uuid4().hex
        self.margins = Margins(slo_micros)
        self._plan = plan
        self._slo_micros = slo_micros
        self._sub_requests = sub_requests
        self._observer = observer
        self._links = Links(self.id, self, carrier)
        self._joined: dict[str, Announcement] = {}
        """Replicas that took batches and are not lost, by id."""
        self._replicas: dict[tuple[StageRef, str], str] = {}
        """Their ids, by stage and worker: a worker that several models share has a replica for each of them."""
        self._core = make_scheduler(plan, self.id, self._carry_out)
        self._sending_micros = 0
        """What is kept free for a batch's way to its first stage, whatever its size."""
        self.answering_micros = 0
        """What is kept free for a request's way from its last result to its response."""
        self._ready = {ref: set[str]() for ref, _ in plan.stages()}
        """Replicas that take batches, by stage."""
        self._width = 0
        self._leaving: set[str] = set()
        """Replicas that are left once they have answered everything."""
        self._flights: dict[int, _Flight] = {}
        self._executions = {ref: stage.latency_micros for ref, stage in plan.stages()}
        self._neighbours: tuple[Dispatcher, ...] = ()
        self._wake, self.now = self._core.wake, self._core.now
        self._keep_margins(now_micros())

    def connect(self, replicas: Iterable[Announcement]) -> None:
        """Connect to those of `replicas` that run this plan and are not connected yet."""
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
        """Samples that go at once where each ready replica runs a full batch, at the module that takes fewest."""
        return self._width

    @property
    def scheduled(self) -> bool:
        """Whether somebody decides what to dispatch."""
        return self._core.ready

    def signals(self) -> CoreSignals | None:
        """The scheduler's counters as they stand; None if they are kept elsewhere."""
        return self._core.signals()

    def arrive(self, sub_id: int, module: str, deadline: int, now: int) -> None:
        """A sub-request for a model."""
        self._core.arrive(sub_id, module, deadline, now)
        self._wake()

    def cancel(self, sub_id: int, now: int) -> None:
        """Nobody waits for a sub-request any more."""
        self._core.cancel(sub_id, now)

    def tick(self) -> None:
        """To be called a few times a second: learns delays, and gives up on batches that nobody reports."""
        now = self.now()
        self._keep_margins(now)
        self._core.tick()
        for flight in [*self._flights.values()]:
            if now - flight.dispatch.finish > OVERDUE_MICROS + 2 * self._slo_micros:
                stuck = flight.replicas[max(flight.stages_done, flight.holder)]
                batch = flight.dispatch.batch_id
                logger.warning("batch %d is overdue at replica %s", batch, stuck, extra=self._about(flight.dispatch))
                self._links.close_one(stuck)
        self._links.ask(now)
        self._wake()

    def share_with(self, neighbours: Iterable["Dispatcher"]) -> None:
        """Others that use the same replicas, each with a scheduler of its own: they learn what this one has there."""
        known, self._neighbours = self._neighbours, tuple(neighbours)
        now = now_micros()
        for neighbour in self._neighbours:
            if neighbour not in known:
                for flight in self._flights.values():
                    neighbour._occupied(self._occupies(flight), now)

    def _occupied(self, until: Iterable[tuple[str, int]], now: int) -> None:
        for worker, moment in until:
            self._core.worker_busy(worker, moment, now)

    def _occupies(self, flight: _Flight) -> Iterable[tuple[str, int]]:
        """The replicas that a batch still needs, and until when by the plan."""
        dispatch = flight.dispatch
        for stage in range(flight.stages_done, len(dispatch.path)):
            ref = StageRef(dispatch.module, dispatch.pipeline, stage)
            latency = self._executions[ref][len(dispatch.request_ids) - 1]
            yield dispatch.path[stage], dispatch.starts[stage] + latency

    def close(self) -> None:
        """Leave the replicas."""
        self._links.close()
        self._core.close()

    # What the replicas say (links.LinkListener).

    def joined(self, replica: Announcement) -> None:
        """A replica takes batches."""
        self._joined[replica.replica] = replica
        self._replicas[replica.ref, replica.worker] = replica.replica
        self._core.worker_joined(replica.ref, replica.worker, replica.node, now_micros())
        self._ready[replica.ref].add(replica.replica)
        self._width = self._plan.width(self._ready)
        self._wake()

    def draining(self, replica: str) -> None:
        """A replica takes nothing more; it is left once it has nothing more to answer."""
        self._leaving.add(replica)
        self._rest(replica, now_micros())
        self._leave_drained(replica)
        self._wake()

    def lost(self, replica: str) -> None:
        """A replica is gone, and what it had with it."""
        left = self._joined.pop(replica)
        del self._replicas[left.ref, left.worker]
        self._forget(replica)
        self._leaving.discard(replica)
        now = now_micros()
        flights = [flight for flight in self._flights.values() if replica in flight.replicas]
        for flight in flights:
            stage = flight.replicas.index(replica)
            if stage < flight.holder and stage >= flight.stages_done:  # its report was lost with it
                self._core.completed(flight.dispatch.batch_id, stage, now, 0)
                flight.stages_done = stage + 1
        if any(other.worker == left.worker for other in self._joined.values()):
            self._core.worker_left(left.ref, left.worker, now)
        else:
            self._core.worker_lost(left.worker, now)
        for flight in flights:
            if flight.needs(replica):
                self._core.lost(flight.dispatch.batch_id, now)  # it had reported it, but not handed it on
                self._ended(flight.dispatch.batch_id, now)
        self._wake()

    def admit_answer(self, replica: str, answer: Answer) -> None:
        """Answers must be as many rows as the batch has; answers to batches that were given up are let through."""
        flight = self._flights.get(answer.batch_id)
        rows = {tensor.shape[:1] for tensor in answer.tensors}
        if flight is not None and rows != {(len(flight.sub_ids),)}:
            raise WireError(f"replica {replica} answered a batch of {len(flight.sub_ids)} with rows {rows}")

    def taken(self, replica: str, batch_id: int) -> None:
        """A replica has got a batch from the one before, which may go now."""
        flight = self._flights.get(batch_id)
        if flight is not None and replica in flight.replicas:
            self._held(flight, flight.replicas.index(replica))

    def reported(self, replica: str, message: Report | Answer | Undelivered | Failed, tensors: list[Array]) -> None:
        """A stage has run a batch, or failed to."""
        flight = self._flights.get(message.batch_id)
        if flight is None or replica not in flight.replicas:
            return
        now = self.now()
        stage = flight.replicas.index(replica)
        match message:
            case Report():
                self._stage_done(flight, stage, message, now)
            case Answer():
                self._stage_done(flight, stage, message, now)
                self._ended(message.batch_id, now)
                self._wake()  # the replica should not wait until the answers are sent
                asyncio.get_running_loop().call_soon(self._answer, flight, tensors, now)
            case Undelivered() if flight.holder > stage:
                return  # the next stage has said otherwise
            case Undelivered():
                logger.warning("batch %d: %s", message.batch_id, message.reason, extra=self._about(flight.dispatch))
                self._core.lost(message.batch_id, now)
                self._ended(message.batch_id, now)
                self._reconnect(flight.replicas[stage + 1 :][:1], now)
            case Failed():
                self._core.failed(message.batch_id, now, message.reason)
                self._ended(message.batch_id, now)
        self._wake()

    def _answer(self, flight: _Flight, tensors: list[Array], now: int) -> None:
        for row, sub_id in enumerate(flight.sub_ids):
            self._sub_requests.answered(sub_id, [tensor[row] for tensor in tensors], now)

    def _reconnect(self, replicas: Iterable[str], now: int) -> None:
        """These replicas get nothing more until they have been reached anew, if they can be."""
        for replica in replicas:
            self._rest(replica, now)
            self._links.close_one(replica)

    def _rest(self, replica: str, now: int) -> None:
        """The replica gets no new batches; other models on its vGPU do."""
        self._forget(replica)
        resting = self._joined.get(replica)
        if resting is not None and resting.vgpu is None:
            self._core.worker_draining(resting.worker, now)
        elif resting is not None:
            self._core.worker_left(resting.ref, resting.worker, now)

    def _stage_done(self, flight: _Flight, stage: int, message: Report | Answer, now: int) -> None:
        if self._observer is not None:
            self._observer.ran(message.batch_id, stage, message.waited_micros, message.ran_micros, now)
        if stage == 0:
            elsewhere = now - flight.due - message.waited_micros - message.ran_micros
            self.margins.sending.observe(len(flight.sub_ids), elsewhere, now)
        if stage >= flight.stages_done:  # reports of two replicas may overtake each other
            self._core.completed(message.batch_id, stage, now, message.ran_micros)
            flight.stages_done = stage + 1
        self._held(flight, stage)

    def _held(self, flight: _Flight, stage: int) -> None:
        passed = flight.replicas[flight.holder : stage]
        flight.holder = max(flight.holder, stage)
        for replica in passed:
            self._leave_drained(replica)

    def _about(self, dispatch: Dispatch) -> dict[str, object]:
        """What a log line about a batch is about."""
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
        """An event loop that is always later than the margin would drop everything, and send nothing to learn by."""
        if late > self._sending_micros:
            self.margins.sending.observe(1, late, now_micros())

    def _dispatch(self, dispatch: Dispatch, due: int) -> None:
        refs = [StageRef(dispatch.module, dispatch.pipeline, stage) for stage in range(len(dispatch.path))]
        replicas = tuple([self._replicas.get(place, "") for place in zip(refs, dispatch.path, strict=True)])
        if not all(self._links.reaches(replica) for replica in replicas):
            self._core.lost(dispatch.batch_id, due)  # decided elsewhere, before it was known there
            self._wake()
            return
        # With a sub-request that was dropped in the same decision, its siblings have become pointless.
        wanted = {sub_id: self._sub_requests.tensor(sub_id) for sub_id in dispatch.request_ids}
        rows = {sub_id: row for sub_id, row in wanted.items() if row is not None}
        flight = self._flights[dispatch.batch_id] = _Flight(dispatch, replicas, due, tuple(rows))
        for neighbour in self._neighbours:
            neighbour._occupied(self._occupies(flight), due)
        if self._observer is not None:
            self._observer.sent(dispatch, tuple(rows), now_micros())
        try:
            self._send(flight, [*rows.values()])
        except WireError as error:
            self._core.failed(dispatch.batch_id, due, str(error))
            self._ended(dispatch.batch_id, now_micros())
            self._wake()

    def _send(self, flight: _Flight, rows: list[Array]) -> None:
        if not rows:
            raise WireError("nobody waits for the batch any more")
        header = tensor_header((len(rows), *rows[0].shape), rows[0].dtype)
        first, *others = flight.replicas
        path = tuple([self._links.hop(replica) for replica in others])
        batch = Batch(batch_id=flight.dispatch.batch_id, frontend=self.id, path=path, tensors=(header,))
        self._links.send(first, batch, rows)

    def _ended(self, batch_id: int, now: int) -> None:
        flight = self._flights.pop(batch_id)
        if self._observer is not None:
            self._observer.over(batch_id, now)
        for replica in flight.replicas:
            self._leave_drained(replica)

    def _leave_drained(self, replica: str) -> None:
        if replica in self._leaving and not any(f.needs(replica) for f in self._flights.values()):
            self._links.close_one(replica)
