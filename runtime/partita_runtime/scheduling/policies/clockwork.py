"""Clockwork's scheduler (Gujarati et al., OSDI 2020, section 5.3, and its release; Symphony, sections 2.2 and 5)."""

from bisect import bisect_left
from operator import attrgetter
from typing import Final

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.pipelines import PipelineState
from partita_runtime.scheduling.policies.feasible_batch import Fit, hold, rest
from partita_runtime.scheduling.policies.policy import Candidate, Dropped, Policy
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.path_search import probe, probe_finish

AHEAD_MS: Final = 10.0
"""What the release schedules ahead, if not told otherwise (`schedule_ahead` of its scheduler `INFER5`)."""
BUFFER_MICROS: Final = 5_000
"""So long before the SLO the release wants to be done (`buffer`), but that long after what is scheduled ahead."""

_DEADLINE: Final = attrgetter("deadline")


class Clockwork(Policy):
    """Of all models' batches the one whose latest start is the earliest is committed next, to the worker free first.

    A worker is given more once it has less than `ahead` milliseconds of work left, so that it never waits for an action
    on its way: so long before its start a batch is fixed. Of a model's batches the largest is taken for which so many
    requests wait that all would be in time; those in the queue before them are given up. Efficiency plays no part.
    As in Symphony's comparison any size will do, not only powers of two. The release looks at workers in turn and takes
    whichever has room; here it is the one that is free first.
    """

    def __init__(self, ahead_ms: float = AHEAD_MS) -> None:
        self._ahead = round(ahead_ms * 1000)
        self._passed_over: dict[str, list[QueuedRequest]] = {}
        """By module: the batch's first request, and those before it that are given up once it is committed."""

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """At once: a worker may have room for an action."""
        return now

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The largest batch that is in time, once a worker has less than `ahead` of work left."""
        self._give_up_passed_over(module, dropped)
        pipeline = _soonest(module, now)
        if pipeline is None:
            hold(module, now, dropped)
            return None
        queue = module.queue
        alone = probe_finish(pipeline, 1, now)
        while queue.waiting and queue.waiting[0].deadline - self._early(queue.waiting[0]) < alone:
            pipeline.doubt_correction(queue.waiting[0].deadline - now)
            dropped.append((queue.take(1)[0], DropReason.TOO_LATE))
        if not queue.waiting:
            rest(module)
            return None
        fit, first = self._largest(module, pipeline, now)
        due = fit.free_from - self._ahead
        if due > now:
            fit.wait(module, due)
            return None
        batch = queue.waiting[first : first + fit.batch_size]
        if first:
            self._passed_over[module.name] = [batch[0], *queue.front(first)]
        return Candidate(pipeline, batch, fit.path, now + batch[0].deadline - fit.path.finish)

    def _early(self, request: QueuedRequest) -> int:
        """How long before its deadline the request is to be answered."""
        return min(BUFFER_MICROS, max(0, request.deadline - request.arrived - self._ahead - BUFFER_MICROS))

    def _largest(self, module: ModuleState, pipeline: PipelineState, now: int) -> tuple[Fit, int]:
        """The largest batch, and its place in the queue; the oldest request alone is in time."""
        waiting = module.queue.waiting
        early = self._early(waiting[0])
        limit = min(len(waiting), pipeline.batch_size)
        fits, fails, first = 1, limit + 1, 0
        while fails - fits > 1:
            size = (fits + fails) // 2
            found = bisect_left(waiting, probe_finish(pipeline, size, now) + early, key=_DEADLINE)
            if len(waiting) - found >= size:
                fits, first = size, found
            else:
                fails = size
        return Fit(pipeline, fits, limit, probe(pipeline, fits, now)), first

    def _give_up_passed_over(self, module: ModuleState, dropped: list[Dropped]) -> None:
        """Those before the first request of the batch that was just committed, if it was."""
        noted = self._passed_over.pop(module.name, None)
        if noted is None or noted[0].waits:
            return
        for request in noted[1:]:
            if request.waits:
                module.queue.remove(request)
                dropped.append((request, DropReason.OVERLOAD))


def _soonest(module: ModuleState, now: int) -> PipelineState | None:
    """The pipeline on which one request would be done first."""
    return min(module.eligible(), key=lambda pipeline: probe_finish(pipeline, 1, now), default=None)
