"""Shepherd's Flex: eager batching with preemption (Zhang et al., NSDI 2023, section 4; Symphony, section 3)."""

from typing import Final

from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.pipelines import PipelineState
from partita_runtime.scheduling.policies.feasible_batch import Misfit, best_fit, give_up_oldest, hold, rest
from partita_runtime.scheduling.policies.policy import Candidate, Dropped, Policy
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.dispatched import InFlight
from partita_runtime.scheduling.reservations.path_search import Leg, Path

PREEMPTION_RATIO: Final = 3
"""How many times the running batch a candidate must be to preempt it."""


class Shepherd(Policy):
    """A free worker gets the largest of all models' batches; a batch three times as large as a running one preempts it.

    What the preempted batch has computed is lost; its requests are queued again. Batches on pipelines of several
    stages are never preempted: Shepherd knows models of one stage only.
    """

    def __init__(self, flight: InFlight) -> None:
        self._flight = flight

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """At once: the batch may be large enough to preempt another."""
        return now

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The largest batch that is in time on a free worker, or in the place of a batch a third of its size."""
        while module.queue.waiting:
            fit = best_fit(module, now)
            if fit is None:
                hold(module, now, dropped)
                return None
            if not isinstance(fit, Misfit) and fit.free_from <= now:
                largest = fit.candidate(module, now)
                largest.urgency = -fit.batch_size
                return largest
            preempting = self._preempting(module, fit.pipeline, now)
            if preempting is not None:
                return preempting
            if not isinstance(fit, Misfit):
                fit.wait(module, fit.free_from)
                return None
            give_up_oldest(module, fit, now, dropped)
        rest(module)
        return None

    def _preempting(self, module: ModuleState, pipeline: PipelineState, now: int) -> Candidate | None:
        """The largest batch in time if it started right now, in the place of the smallest running one."""
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
            and (batch := self._flight.get(worker.reservations[0].batch_id)) is not None
            and PREEMPTION_RATIO * len(batch.requests) <= size
            and len(batch.workers) == 1
        ]
        victim = min(victims, key=lambda batch: len(batch.requests), default=None)
        if victim is None:
            return None
        start, length = now + pipeline.delay(size), pipeline.stages[0].latency[size - 1]
        leg = Leg(victim.workers[0], start, length, start, 0)
        path = Path([leg], start + length, 0, 0)
        return Candidate(pipeline, queue.front(size), path, -size, preempts=victim)
