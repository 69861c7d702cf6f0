"""Deferred batching on reserved paths: Partita's policy (Symphony, section 3; PPipe, section 5.4)."""

from functools import lru_cache
from math import sqrt
from typing import Final

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.policies.feasible_batch import Fit, feasible_fit
from partita_runtime.scheduling.policies.policy import Candidate, Dropped, Policy
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.path_search import probe_finish
from partita_runtime.scheduling.workers.load import Load

_SPREAD: Final = 4
"""In simulations of 35 models on 64 GPUs, 2 and 6 did worse."""


class Deferred(Policy):
    """A batch waits, within the deadline, until it fills its worker.

    It may go from its *frontrun*, the moment after which one request more would miss the oldest deadline, until its
    *latest*, the last moment at which the batch itself meets it; a full batch may go at once. It goes as soon as a
    path is free.

    The windows of several modules on the same workers may open all at once. If fewer workers are idle than may be asked
    for then (`Row.is_short`), a batch goes up to `_SPREAD` l(b) / sqrt(N) before its frontrun.

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
        pipeline, queue, blocked_until = module.foreseen, module.queue.waiting, module.blocked_until
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
        frontrun = deadline - pipeline.total[waiting] - module.waiting
        if module.early and pipeline.stages[0].pool.row().is_short(waiting):
            frontrun -= module.early
        return frontrun if frontrun > blocked_until else blocked_until

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The batch that is in its window and has a free path now, if any."""
        while True:
            fit = feasible_fit(module, now, dropped)
            if fit is None:
                return None
            pipeline, batch_size = fit.pipeline, fit.batch_size
            due = fit.free_from
            if batch_size == fit.limit and batch_size < pipeline.batch_size:
                slack = module.queue.waiting[0].deadline - probe_finish(pipeline, batch_size + 1, now)
                module.early = _early(fit)
                early = module.early if module.early and pipeline.stages[0].pool.row().is_short(batch_size) else 0
                if slack > early:
                    due = max(due, now + slack - early)
                elif slack > 0 and batch_size < self._load.sustainable_batch(pipeline, now):
                    due = max(due, now + slack)
            if due > now:
                fit.wait(module, due)
                return None
            hopeless = self._too_many(module, fit, now) if batch_size < fit.limit else 0
            if not hopeless:
                return fit.candidate(module, now)
            dropped += [(request, DropReason.OVERLOAD) for request in module.queue.take(hopeless)]

    def _too_many(self, module: ModuleState, fit: Fit, now: int) -> int:
        """How many of the oldest requests to give up, so that a batch that keeps up with the load can go now."""
        pipeline = fit.pipeline
        busy = fit.path.legs[0].worker
        for other in module.pipelines:
            if other.eligible and other.stages[0].pool.has_another_free(now + other.delay(1), busy):
                return 0
        target = self._load.sustainable_batch(pipeline, now)
        if fit.batch_size >= target:
            return 0
        queue = module.queue.waiting
        finish = probe_finish(pipeline, target, now)
        for given_up in range(1, len(queue)):
            left = len(queue) - given_up
            if left < target:
                finish = probe_finish(pipeline, left, now)
            if queue[given_up].deadline >= finish:
                return given_up
        return 0


def _early(fit: Fit) -> int:
    """How long before its frontrun a batch may go, if few workers are idle (microseconds)."""
    leg = fit.path.legs[0]
    return _spread(leg.length, fit.pipeline.stages[0].pool.size) if len(leg.worker.pools) > 1 else 0


@lru_cache(maxsize=4096)
def _spread(length: int, workers: int) -> int:
    """How long before its frontrun a batch of this length may go on so many workers, if few are idle."""
    return round(_SPREAD * length / sqrt(workers))
