"""Clockwork's scheduler (Gujarati et al., OSDI 2020, section 5.3, and its release; Symphony, sections 2.2 and 5)."""

from bisect import bisect_left
from operator import attrgetter
from typing import Final

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.modules.pipeline_state import PipelineState
from partita_runtime.scheduling.policies.feasible_batch import FeasibleBatch, FeasibleBatchPolicy
from partita_runtime.scheduling.policies.policy import Candidate, Dropped, PolicyContext
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.path_search import earliest_finish, find_path

AHEAD_MS: Final = 10.0
"""How much work the release schedules ahead by default (`schedule_ahead` of its scheduler `INFER5`)."""
BUFFER_MICROS: Final = 5_000
"""The release plans to answer this long before the SLO (`buffer`), but at least this long after the work ahead."""

_DEADLINE: Final = attrgetter("deadline")


class Clockwork(FeasibleBatchPolicy):
    """Commits the batch with the earliest latest start of all models next, to the worker that is free first.

    A worker gets more work once it has less than `ahead` milliseconds of work left, so it never waits for an action on
    its way; a batch is fixed this long before its start. Of a model's batches, the policy takes the largest one for
    which enough requests wait that would all be in time, and drops the requests before them in the queue. It ignores
    efficiency. As in Symphony's comparison any batch size is allowed, not only powers of two. The release checks
    workers in turn and takes the first with capacity; this policy takes the worker that is free first.
    """

    def __init__(self, context: PolicyContext, ahead_ms: float = AHEAD_MS) -> None:
        super().__init__(context)
        self._ahead = round(ahead_ms * 1000)
        self._passed_over: dict[str, list[QueuedRequest]] = {}
        """By module: the batch's first request, and the requests before it, to drop once the batch is committed."""

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """At once: a worker may have capacity for an action."""
        return now

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The largest batch that is in time, once a worker has less than `ahead` of work left."""
        self._drop_passed_over(module, dropped)
        pipeline = _soonest(module, now)
        if pipeline is None:
            self.wait_for_workers(module, now, dropped)
            return None
        queue = module.queue
        alone = earliest_finish(pipeline, 1, now)
        while queue.waiting and queue.waiting[0].deadline - self._early(queue.waiting[0]) < alone:
            oldest = queue.take(1)[0]
            pipeline.doubt_correction(oldest.deadline - oldest.arrived)
            dropped.append((oldest, DropReason.TOO_LATE))
        if not queue.waiting:
            self.wait_for_requests(module)
            return None
        batch, first = self._largest(module, pipeline, now)
        due = batch.free_from - self._ahead
        if due > now:
            self.wait_until(module, batch, due)
            return None
        requests = queue.waiting[first : first + batch.batch_size]
        if first:
            self._passed_over[module.name] = [requests[0], *queue.front(first)]
        return Candidate(pipeline, requests, batch.path, now + requests[0].deadline - batch.path.finish)

    def _early(self, request: QueuedRequest) -> int:
        """How long before its deadline the request should be answered (microseconds)."""
        return min(BUFFER_MICROS, max(0, request.deadline - request.arrived - self._ahead - BUFFER_MICROS))

    def _largest(self, module: ModuleState, pipeline: PipelineState, now: int) -> tuple[FeasibleBatch, int]:
        """The largest batch and its position in the queue; the oldest request alone is in time."""
        waiting = module.queue.waiting
        early = self._early(waiting[0])
        limit = min(len(waiting), pipeline.batch_size)
        feasible, infeasible, first = 1, limit + 1, 0
        while infeasible - feasible > 1:
            size = (feasible + infeasible) // 2
            found = bisect_left(waiting, earliest_finish(pipeline, size, now) + early, key=_DEADLINE)
            if len(waiting) - found >= size:
                feasible, first = size, found
            else:
                infeasible = size
        return FeasibleBatch(pipeline, feasible, limit, find_path(pipeline, feasible, now)), first

    def _drop_passed_over(self, module: ModuleState, dropped: list[Dropped]) -> None:
        """Drop the requests before the first request of the last batch, if that batch was committed."""
        noted = self._passed_over.pop(module.name, None)
        if noted is None or noted[0].waits:
            return
        for request in noted[1:]:
            if request.waits:
                module.queue.remove(request)
                dropped.append((request, DropReason.OVERLOAD))


def _soonest(module: ModuleState, now: int) -> PipelineState | None:
    """The pipeline on which one request would end first."""
    return min(module.eligible(), key=lambda pipeline: earliest_finish(pipeline, 1, now), default=None)
