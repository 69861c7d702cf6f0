"""Batches that were dispatched: what they have reserved, and how feedback corrects it."""

from typing import Final

from partita_runtime.scheduling.events import Dispatch
from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.pipelines import PipelineState
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.path_search import Path
from partita_runtime.scheduling.reservations.report_calendar import ReportCalendar
from partita_runtime.scheduling.reservations.timeline import Reservation, delay_behind
from partita_runtime.scheduling.workers.pools import Worker

_OVERRUN_SHARE: Final = 16
_OVERRUN_MICROS: Final = 100
_NO_BATCH: Final = -1


class Batch:
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
        """Ids of its requests that nobody waits for any more, if there are any."""
        self.workers = workers
        self.executions: list[Reservation] = []
        """By stage."""
        self.transfers: tuple[Reservation, ...] = ()
        """Those of them that use the network."""
        self.progress = 0
        """Stages that are completed."""

    def cancel(self, request_id: int) -> None:
        """Nobody waits for this request any more."""
        if self.cancelled is None:
            self.cancelled = set()
        self.cancelled.add(request_id)

    def wanted(self) -> list[QueuedRequest]:
        """The requests that somebody still waits for."""
        cancelled = self.cancelled
        if cancelled is None:
            return self.requests
        return [request for request in self.requests if request.key not in cancelled]


def dispatched(batch: Batch, path: Path, preempted: Batch | None) -> Dispatch:
    """What is told of a batch that goes."""
    legs = path.legs
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
    )
    return tuple.__new__(Dispatch, fields)  # Dispatch(...) goes through Python code, and takes far longer


class InFlight:
    """The batches in flight, by id."""

    def __init__(self) -> None:
        self._batches: dict[int, Batch] = {}
        self._next_id = 0
        self._reports = ReportCalendar()
        self._orphans: list[Reservation] = []
        """Executions that go on though their batch was abandoned."""
        self.report_delay = 0
        """Microseconds that a report may be on its way."""

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def reserved(self) -> int:
        """How many batches were reserved so far: what was found before the last one may no longer hold."""
        return self._next_id

    def get(self, batch_id: int) -> Batch | None:
        """The batch, if it is in flight."""
        return self._batches.get(batch_id)

    def reserve(self, module: ModuleState, pipeline: PipelineState, path: Path, requests: list[QueuedRequest]) -> Batch:
        """A new batch, with everything on its path reserved."""
        batch = Batch(self._next_id, module, pipeline, requests, [leg.worker for leg in path.legs])
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

    def completed(self, batch: Batch, stage: int, now: int, took: int | None) -> bool:
        """The batch left `stage` at `now`, having executed for `took` microseconds, if that was measured.

        Stages before it that were not reported are taken to have ended as reserved. With its last stage the batch is
        no longer in flight. Returns whether it was late, which delays what is reserved behind it.
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

    def abandon(self, batch: Batch, now: int, lost: Worker | None) -> None:
        """The batch will not be completed: what it has reserved is given back.

        If a worker is `lost`, another one that is executing the batch right now goes on to the reserved end.
        """
        del self._batches[batch.batch_id]
        for reservation in [r for r in (*batch.transfers, *batch.executions) if not r.done]:
            running = reservation.start < now < reservation.end and reservation.stage == batch.progress
            worker = batch.workers[reservation.stage]
            if running and lost is not None and worker is not lost:
                reservation.expires = True
                self._orphans.append(reservation)
                continue
            if running and reservation in worker.reservations:
                worker.busy_micros += now - max(reservation.start, worker.last_end)
                worker.last_end = now
            reservation.release()

    def forsake(self, batch: Batch) -> None:
        """Nobody will report the batch: what it has reserved ends as reserved."""
        del self._batches[batch.batch_id]
        for reservation in (*batch.transfers, *batch.executions):
            if not reservation.done:
                reservation.expires = True
                self._orphans.append(reservation)

    def occupy(self, worker: Worker, now: int, until: int) -> None:
        """Keep a worker free of new batches until then, behind whatever it has reserved."""
        start = max(now, worker.tail)
        if start < until:
            occupied = Reservation(worker, start, until, _NO_BATCH, 0)
            occupied.expires = True
            occupied.place()
            self._orphans.append(occupied)

    def catch_up(self, now: int) -> bool:
        """Let executions run on whose report should have come; whether there are any.

        Each time by a sixteenth of their length, until the report comes: nothing is dispatched behind them meanwhile.
        """
        if self._orphans:
            for orphan in [orphan for orphan in self._orphans if orphan.end <= now]:
                self._orphans.remove(orphan)
                orphan.release()
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
