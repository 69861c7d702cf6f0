"""Shepherd's Flex: eager batching with preemption (Zhang et al., NSDI 2023, section 4; Symphony, section 3)."""

from typing import Final

from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.modules.pipeline_state import PipelineState
from partita_runtime.scheduling.policies.feasible_batch import (
    FeasibleBatchPolicy,
    InfeasiblePipeline,
    best_batch,
    drop_oldest,
)
from partita_runtime.scheduling.policies.policy import Candidate, Dropped
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.path_search import Leg, WorkerPath

PREEMPTION_RATIO: Final = 3
"""A candidate must be this many times as large as a running batch to preempt it."""


class Shepherd(FeasibleBatchPolicy):
    """A free worker gets the largest batch of all models; a batch three times as large as a running one preempts it.

    The work of the preempted batch is lost; its requests are queued again. Batches on pipelines of several stages are
    never preempted: Shepherd knows models of one stage only.
    """

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """At once: the batch may be large enough to preempt another."""
        return now

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The largest batch that is in time on a free worker, or in place of a batch of at most a third of its size."""
        while module.queue.waiting:
            batch = best_batch(module, now)
            if batch is None:
                self.wait_for_workers(module, now, dropped)
                return None
            if not isinstance(batch, InfeasiblePipeline) and batch.free_from <= now:
                largest = batch.candidate(module, now)
                largest.urgency = -batch.batch_size
                return largest
            preempting = self._preempting(module, batch.pipeline, now)
            if preempting is not None:
                return preempting
            if not isinstance(batch, InfeasiblePipeline):
                self.wait_until(module, batch, batch.free_from)
                return None
            drop_oldest(module, batch, dropped)
        self.wait_for_requests(module)
        return None

    def _preempting(self, module: ModuleState, pipeline: PipelineState, now: int) -> Candidate | None:
        """The largest batch that is in time if it starts now, in place of the smallest running one."""
        if len(pipeline.stages) > 1:
            return None
        queue = module.queue
        slack = queue.waiting[0].deadline - now
        size = min(len(queue.waiting), pipeline.batch_size)
        while size and pipeline.total[size - 1] > slack:
            size -= 1
        victims = [
            batch
            for worker in pipeline.stages[0].pool
            if len(worker.reservations) == 1
            and (batch := self.context.batches.get(worker.reservations[0].batch_id)) is not None
            and PREEMPTION_RATIO * len(batch.requests) <= size
            and len(batch.workers) == 1
        ]
        victim = min(victims, key=lambda batch: len(batch.requests), default=None)
        if victim is None:
            return None
        start, length = now + pipeline.delay(size), pipeline.stages[0].latency[size - 1]
        leg = Leg(victim.workers[0], start, length, start, 0)
        path = WorkerPath([leg], start + length, 0, 0)
        return Candidate(pipeline, queue.front(size), path, -size, preempts=victim)
