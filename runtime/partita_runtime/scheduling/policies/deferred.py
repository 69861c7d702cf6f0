"""Deferred batching on reserved paths: Partita's policy (Symphony, section 3; PPipe, section 5.4)."""

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.fit import Fit, feasible_fit
from partita_runtime.scheduling.load import Load
from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.policy import Candidate, Dropped
from partita_runtime.scheduling.probe import probe
from partita_runtime.scheduling.queue import QueuedRequest


class Deferred:
    """A batch waits, within the deadline, until it fills its worker.

    It may go from its *frontrun*, the moment after which one request more would miss the oldest deadline, until its
    *latest*, the last moment at which the batch itself meets it; a full batch may go at once. It goes as soon as a
    path is free.

    Under overload the oldest requests are dropped while they would force a batch that is too small to keep up with
    the load (see `Load.sustainable_batch`) and no other worker is idle: served in such batches, all would be late in
    the end.
    """

    def __init__(self, load: Load) -> None:
        self._load = load

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """When to look at a module whose queue `request` has just joined: cheap, and not too late.

        With several stages it is as if one request more were there already, since a larger batch may wait longer.
        """
        pipeline, queue = module.foreseen, module.queue
        if pipeline is None:
            return now if queue[0] is request else max(now, module.blocked_until)
        deadline = queue[0].deadline
        if deadline - pipeline.total[0] < module.blocked_until:
            return now
        waiting = len(queue)
        if waiting >= pipeline.batch_size:
            return module.blocked_until
        if len(pipeline.stages) > 1:
            waiting = min(waiting + 1, pipeline.batch_size - 1)
        return max(module.blocked_until, deadline - pipeline.total[waiting] - module.waiting)

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The batch that is in its window and has a free path now, if any."""
        queue = module.queue
        while (fit := feasible_fit(module, now, dropped)) is not None:
            pipeline, batch_size, limit, _ = fit
            due = fit.free_from
            if batch_size == limit < pipeline.batch_size:
                slack = queue[0].deadline - probe(pipeline, batch_size + 1, now).finish
                due = max(due, now + slack)
            if due > now:
                fit.wait(module, due)
                return None
            hopeless = self._too_many(module, fit, now) if batch_size < limit else 0
            if not hopeless:
                return fit.candidate(module, now)
            dropped += [(request, DropReason.OVERLOAD) for request in queue.take(hopeless)]
        return None

    def _too_many(self, module: ModuleState, fit: Fit, now: int) -> int:
        """How many of the oldest requests to give up, so that a batch that keeps up with the load can go now."""
        pipeline, batch_size, _, path = fit
        busy = path.legs[0].worker
        if any(
            other.stages[0].pool.has_another_free(now + other.delay(1), besides=busy)
            for other in module.pipelines
            if other.eligible
        ):
            return 0
        target = self._load.sustainable_batch(pipeline, now)
        if batch_size >= target:
            return 0
        queue = module.queue
        finish = probe(pipeline, target, now).finish
        for given_up in range(1, len(queue)):
            left = len(queue) - given_up
            if left < target:
                finish = probe(pipeline, left, now).finish
            if queue[given_up].deadline >= finish:
                return given_up
        return 0
