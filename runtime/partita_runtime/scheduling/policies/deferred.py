"""Deferred batching on reserved paths: Partita's policy (Symphony, section 3; PPipe, section 5.4)."""

from functools import lru_cache
from math import sqrt
from typing import Final

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.policies.feasible_batch import FeasibleBatch, FeasibleBatchPolicy
from partita_runtime.scheduling.policies.policy import Candidate, Dropped
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.path_search import earliest_finish

_SPREAD: Final = 4
"""In simulations of 35 models on 64 GPUs, 2 and 6 had a lower goodput."""


class Deferred(FeasibleBatchPolicy):
    """A batch waits, within its deadline, until it fills its worker.

    Its window begins at its *frontrun*, after which one more request would miss the earliest deadline, and ends at its
    *latest* time, at which the batch itself still meets the deadline. A full batch may be dispatched at once. A batch
    is dispatched in its window as soon as a path is free.

    The windows of several modules on the same workers may open at the same time. If fewer workers are idle than the
    modules may then need (`WorkerIndex.is_short`), a batch may be dispatched up to `_SPREAD` l(b) / sqrt(N) before its
    frontrun.

    Under overload, the oldest requests are dropped if they would force a batch that is too small to keep up with the
    load (see `Load.sustainable_batch`) and no other worker is idle. If they were served, all later requests would
    become late.
    """

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """A lower bound of the time of the next dispatch, which is cheap to compute.

        With several stages it counts one more request than there is, since a larger batch may wait longer.
        """
        outlook, queue = self._outlooks[module.order], module.queue.waiting
        pipeline, blocked_until = outlook.pipeline, outlook.blocked_until
        if pipeline is None:
            return now if queue[0] is request or now > blocked_until else blocked_until
        deadline = queue[0].deadline
        if deadline - pipeline.total[0] < blocked_until:
            return now
        waiting = len(queue)
        if waiting >= pipeline.batch_size:
            return blocked_until
        if waiting + 1 < pipeline.batch_size and len(pipeline.stages) > 1:
            waiting += 1
        frontrun = deadline - pipeline.total[waiting] - outlook.waiting
        if outlook.early and pipeline.stages[0].pool.index().is_short(waiting):
            frontrun -= outlook.early
        return frontrun if frontrun > blocked_until else blocked_until

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The batch that is in its window and has a free path now, if any."""
        while True:
            batch = self.feasible_batch(module, now, dropped)
            if batch is None:
                return None
            pipeline, batch_size = batch.pipeline, batch.batch_size
            due = batch.free_from
            if batch_size == batch.limit and batch_size < pipeline.batch_size:
                slack = module.queue.waiting[0].deadline - earliest_finish(pipeline, batch_size + 1, now)
                early = _early(batch)
                self._outlooks[module.order].early = early
                if early and not pipeline.stages[0].pool.index().is_short(batch_size):
                    early = 0
                if slack > early:
                    due = max(due, now + slack - early)
                elif slack > 0 and batch_size < self.context.load.sustainable_batch(pipeline, now):
                    due = max(due, now + slack)
            if due > now:
                self.wait_until(module, batch, due)
                return None
            excess = self._excess(module, batch, now) if batch_size < batch.limit else 0
            if not excess:
                return batch.candidate(module, now)
            dropped += [(request, DropReason.OVERLOAD) for request in module.queue.take(excess)]

    def _excess(self, module: ModuleState, batch: FeasibleBatch, now: int) -> int:
        """How many of the oldest requests to drop so that a batch that keeps up with the load can be dispatched now."""
        pipeline = batch.pipeline
        busy = batch.path.legs[0].worker
        for other in module.pipelines:
            if other.eligible and other.stages[0].pool.has_another_free(now + other.delay(1), busy):
                return 0
        target = self.context.load.sustainable_batch(pipeline, now)
        if batch.batch_size >= target:
            return 0
        queue = module.queue.waiting
        finish = earliest_finish(pipeline, target, now)
        for count in range(1, len(queue)):
            left = len(queue) - count
            if left < target:
                finish = earliest_finish(pipeline, left, now)
            if queue[count].deadline >= finish:
                return count
        return 0


def _early(batch: FeasibleBatch) -> int:
    """How long before its frontrun a batch may be dispatched if few workers are idle (microseconds)."""
    leg = batch.path.legs[0]
    return _spread(leg.length, batch.pipeline.stages[0].pool.size) if len(leg.worker.pools) > 1 else 0


@lru_cache(maxsize=4096)
def _spread(length: int, workers: int) -> int:
    """The same for a batch of this length, on this number of workers that several modules share."""
    return round(_SPREAD * length / sqrt(workers))
