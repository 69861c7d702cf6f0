"""Dispatched batches: their reservations, and how feedback corrects them."""

from typing import Final

from partita_runtime.scheduling.events import Dispatch
from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.modules.pipeline_state import PipelineState
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.path_search import WorkerPath
from partita_runtime.scheduling.reservations.report_calendar import ReportCalendar
from partita_runtime.scheduling.workers.pools import NodeLink, Worker
from partita_runtime.scheduling.workers.timeline import Reservation, delay_behind

_OVERRUN_SHARE: Final = 16
_OVERRUN_MICROS: Final = 100
_NO_BATCH: Final = -1


class DispatchedBatch:
    """One dispatched batch."""

    __slots__ = (
        "batch_id",
        "cancelled",
        "deadline",
        "executions",
        "module",
        "pipeline",
        "progress",
        "requests",
        "transfers",
        "workers",
    )

    def __init__(
        self,
        batch_id: int,
        module: ModuleState,
        pipeline: PipelineState,
        requests: list[QueuedRequest],
        workers: list[Worker],
    ) -> None:
        self.batch_id = batch_id
        self.module = module
        self.pipeline = pipeline
        self.requests = requests
        deadline = requests[0].deadline
        for request in requests:
            if request.deadline < deadline:
                deadline = request.deadline
        self.deadline = deadline
        """The earliest of its requests."""
        self.cancelled: set[object] | None = None
        """Ids of its cancelled requests; None if there are none."""
        self.workers = workers
        self.executions: list[Reservation] = []
        """Reservations on the workers, by stage."""
        self.transfers: tuple[Reservation, ...] = ()
        """Reservations on the network."""
        self.progress = 0
        """Number of completed stages."""

    def cancel(self, request_id: int) -> None:
        """The client of this request is gone."""
        if self.cancelled is None:
            self.cancelled = set()
        self.cancelled.add(request_id)

    def live_requests(self) -> list[QueuedRequest]:
        """The requests that are not cancelled."""
        cancelled = self.cancelled
        if cancelled is None:
            return self.requests
        return [request for request in self.requests if request.key not in cancelled]

    def remaining_reservations(self) -> list[Reservation]:
        """The transfers and executions that are not done."""
        return [reservation for reservation in (*self.transfers, *self.executions) if not reservation.done]


def dispatch_of(batch: DispatchedBatch, path: WorkerPath, preempted: DispatchedBatch | None) -> Dispatch:
    """The decision to dispatch a batch, in the place of a preempted one if given."""
    legs = path.legs
    begin, last = legs[0].start, legs[-1]
    links_free = [begin] * (len(legs) - 1)
    for transfer in batch.transfers:
        links_free[transfer.stage - 1] = max(begin, transfer.free_since())
    fields = (
        batch.batch_id,
        batch.module.name,
        batch.pipeline.name,
        tuple([request.key for request in batch.requests]),
        tuple([leg.worker.name for leg in legs]),
        tuple([leg.start for leg in legs]),
        path.finish,
        batch.deadline,
        tuple([leg.transfer_start for leg in legs[1:]]),
        None if preempted is None else preempted.batch_id,
        tuple(links_free),
        batch.deadline - last.start - last.length,
    )
    return tuple.__new__(Dispatch, fields)  # Dispatch(...) runs Python code and is far slower


class DispatchedBatches:
    """The dispatched batches that have not ended, by id."""

    def __init__(self) -> None:
        self._batches: dict[int, DispatchedBatch] = {}
        self._next_id = 0
        self._reports = ReportCalendar()
        self._expiring: list[Reservation] = []
        """Reservations that end as reserved, without a report: those of lost batches and of other schedulers."""
        self.report_delay = 0
        """Microseconds from the end of an execution until its report must arrive."""

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def count_reserved(self) -> int:
        """Number of batches reserved so far: a path found before the last of them may no longer be free."""
        return self._next_id

    def get(self, batch_id: int) -> DispatchedBatch | None:
        """The batch, if it has not ended."""
        return self._batches.get(batch_id)

    def reserve(
        self, module: ModuleState, pipeline: PipelineState, path: WorkerPath, requests: list[QueuedRequest]
    ) -> DispatchedBatch:
        """Make a batch, and reserve its whole path."""
        batch = DispatchedBatch(self._next_id, module, pipeline, requests, [leg.worker for leg in path.legs])
        self._next_id += 1
        self._batches[batch.batch_id] = batch
        last: Reservation | None = None
        for stage, leg in enumerate(path.legs):
            if leg.transfer_length:
                uplink, downlink = batch.workers[stage - 1].node.uplink, leg.worker.node.downlink
                sent = leg.transfer_start
                transfer = Reservation(uplink, sent, sent + leg.transfer_length, batch.batch_id, stage, downlink)
                batch.transfers = (*batch.transfers, transfer)
                last = _place_after(last, transfer)
            execution = Reservation(leg.worker, leg.start, leg.start + leg.length, batch.batch_id, stage)
            batch.executions.append(execution)
            last = _place_after(last, execution)
            self._expect_report(execution)
        return batch

    def completed(self, batch: DispatchedBatch, stage: int, now: int, took: int | None) -> bool:
        """The batch completed `stage` at `now`; `took` is the measured execution time (microseconds), if known.

        Earlier stages without a report count as ended as reserved. The last stage ends the batch. Returns whether the
        stage was late, which delays the reservations behind it.
        """
        late = now > batch.executions[stage].end
        for passed in range(batch.progress, stage + 1):
            execution = batch.executions[passed]
            worker = batch.workers[passed]
            end = now if passed == stage else min(now, execution.end)
            if late and passed == stage:
                execution.end = end
                delay_behind(execution)
            actual = took if took is not None and passed == stage else end - max(execution.start, worker.last_end)
            execution.release()
            worker.last_end = max(worker.last_end, end)
            worker.busy_micros += max(0, actual)
            if passed == stage and actual > 0:
                batch.pipeline.observe(stage, len(batch.requests), actual)
        for transfer in batch.transfers:
            if transfer.stage <= stage and not transfer.done:
                transfer.release()
        batch.progress = stage + 1
        if batch.progress == len(batch.executions):
            del self._batches[batch.batch_id]
        return late

    def transferred(self, batch: DispatchedBatch, stage: int, now: int, took: int | None) -> int:
        """The batch arrived at `stage` at `now`, `took` (microseconds) after it was sent, if that is known.

        Does nothing if no transfer is reserved, as on one node. Returns by how much it was late, which delays the
        reservations behind it; less than 0 if it was early.
        """
        for transfer in batch.transfers:
            if transfer.stage == stage and not transfer.done:
                break
        else:
            return 0
        sent = min(now, transfer.start) if took is None else now - took
        links = batch.workers[stage - 1].node.uplink, batch.workers[stage].node.downlink
        least, most = _own_time(links, sent, now)
        late = now - transfer.end
        if late > 0:
            transfer.end = now
            delay_behind(transfer)
        transfer.release()
        batch.pipeline.observe_transfer(stage, len(batch.requests), least, most)
        return late

    def withdraw(self, batch: DispatchedBatch, now: int, lost: Worker | None) -> None:
        """The batch will not be completed: release its reservations.

        If a worker is `lost`, another worker that executes the batch now continues until the reserved end.
        """
        del self._batches[batch.batch_id]
        for reservation in batch.remaining_reservations():
            running = reservation.start < now < reservation.end and reservation.stage == batch.progress
            worker = batch.workers[reservation.stage]
            if running and lost is not None and worker is not lost:
                reservation.expires = True
                self._expiring.append(reservation)
                continue
            if running and reservation in worker.reservations:
                worker.busy_micros += now - max(reservation.start, worker.last_end)
                worker.last_end = now
            reservation.release()

    def expect_no_report(self, batch: DispatchedBatch) -> None:
        """No report of the batch will come: its reservations end as reserved."""
        del self._batches[batch.batch_id]
        for reservation in batch.remaining_reservations():
            reservation.expires = True
            self._expiring.append(reservation)

    def occupy(self, worker: Worker, now: int, until: int) -> None:
        """Reserve a worker until a time, after its present reservations."""
        start = max(now, worker.tail)
        if start < until:
            occupied = Reservation(worker, start, until, _NO_BATCH, 0)
            occupied.expires = True
            occupied.place()
            self._expiring.append(occupied)

    def extend_overdue(self, now: int) -> bool:
        """Extend executions whose reports are overdue; returns whether there are any.

        Each call extends by a sixteenth of the length, until the report arrives. Nothing is dispatched behind an
        overdue execution.
        """
        if self._expiring:
            for expired in [reservation for reservation in self._expiring if reservation.end <= now]:
                self._expiring.remove(expired)
                expired.release()
        overran = False
        while True:
            execution = self._reports.take_overdue(now)
            if execution is None:
                return overran
            if execution.expires:
                continue
            if execution.end + self.report_delay <= now:
                length = execution.end - execution.start
                execution.end = now + max(_OVERRUN_MICROS, length // _OVERRUN_SHARE)
                delay_behind(execution)
                overran = True
            self._expect_report(execution)

    def _expect_report(self, execution: Reservation) -> None:
        self._reports.expect(execution, execution.end + self.report_delay)


def _place_after(last: Reservation | None, reservation: Reservation) -> Reservation:
    reservation.place()
    if last is not None:
        last.following = reservation
    return reservation


def _own_time(links: tuple[NodeLink, NodeLink], sent: int, now: int) -> tuple[int, int]:
    """Bounds of the time that a transfer takes alone, which ends now; others may have ended on its links before.

    If links carry one transfer after the other, it began when the previous one ended. If all share the bandwidth, it
    had a part of it. Which of the two applies is unknown.
    """
    queued = shared = took = now - sent
    for link in links:
        ended = link.ended_since(sent)
        if ended:
            queued = min(queued, now - link.ends[-1])
            shared = min(shared, took // (1 + ended))
        link.transferred(now)
    return (queued, shared) if queued < shared else (shared, queued)
