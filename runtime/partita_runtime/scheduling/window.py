"""When a module's next batch is dispatched, how large, and on which path: the schedulable window.

Deferred batch scheduling (Symphony, section 3) on reserved paths (PPipe, section 5.4).
"""

from typing import NamedTuple

from partita_api.inferencesession import BatchingPolicy
from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.load import Load
from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.pipelines import PipelineState
from partita_runtime.scheduling.probe import Path, probe
from partita_runtime.scheduling.queue import QueuedRequest

Dropped = tuple[QueuedRequest, DropReason]


class Candidate(NamedTuple):
    """A batch that may be dispatched now."""

    pipeline: PipelineState
    batch_size: int
    path: Path
    latest: int
    """The last moment at which a batch of this size meets the oldest deadline, if it need not wait longer."""


class _Fit(NamedTuple):
    """The largest batch that meets the oldest deadline on one pipeline; path is None if not even one request does."""

    pipeline: PipelineState
    batch_size: int
    limit: int
    """What the queue and the plan would allow."""
    path: Path | None


class Window:
    """The batching policy.

    A batch may go from its *frontrun*, the moment after which one request more would miss the oldest deadline, until
    its *latest*, the last moment at which the batch itself meets it; a full batch may go at once. It goes as soon as
    a path is free. The eager policy knows no frontrun.

    Under overload the oldest requests are dropped while they would force a batch that is too small to keep up with
    the load (see `Load.sustainable_batch`) and no other worker is idle: served in such batches, all would be late in
    the end. The eager policy keeps them.
    """

    def __init__(self, policy: BatchingPolicy, load: Load) -> None:
        self._deferred = policy is BatchingPolicy.DEFERRED
        self._load = load

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The batch to dispatch now, if any; else when to look again is in `module.due`.

        Requests that cannot be served any more, or are given up, leave the queue for `dropped`.
        """
        queue = module.queue
        while queue:
            fit = _best_fit(module, now)
            if fit is None:
                _hold(module, now, dropped)
                return None
            pipeline, batch_size, limit, path = fit
            if path is None:
                pipeline.doubt_correction(queue[0].deadline - now)
                dropped += [(request, DropReason.TOO_LATE) for request in queue.take(1)]
                continue
            free_from = path.start - pipeline.delay(batch_size)
            due = free_from
            if self._deferred and batch_size == limit < pipeline.batch_size:
                slack = queue[0].deadline - probe(pipeline, batch_size + 1, now).finish
                due = max(due, now + slack)
            if due > now:
                module.due = due
                module.blocked_until = path.start - pipeline.delay(pipeline.batch_size)
                module.foreseen = pipeline
                module.waiting = path.waiting - path.initial_wait
                return None
            if self._deferred and batch_size < limit:
                hopeless = self._too_many(module, pipeline, path, batch_size, now)
                if hopeless:
                    dropped += [(request, DropReason.OVERLOAD) for request in queue.take(hopeless)]
                    continue
            return Candidate(pipeline, batch_size, path, now + queue[0].deadline - path.finish)
        module.due = None
        module.foreseen = None
        return None

    def due_on_arrival(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
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
        if waiting >= pipeline.batch_size or not self._deferred:
            return module.blocked_until
        if len(pipeline.stages) > 1:
            waiting = min(waiting + 1, pipeline.batch_size - 1)
        return max(module.blocked_until, deadline - pipeline.total[waiting] - module.waiting)

    def _too_many(self, module: ModuleState, pipeline: PipelineState, path: Path, batch_size: int, now: int) -> int:
        """How many of the oldest requests to give up, so that a batch that keeps up with the load can go now."""
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


def _best_fit(module: ModuleState, now: int) -> _Fit | None:
    """The pipeline for the next batch, and the largest batch for it; None if no pipeline is eligible.

    Preferred are pipelines on which the oldest deadline leaves the batch whole, then those that wait least for a batch
    of the planned size (PPipe, Algorithm 1), then those that come first in the plan.
    """
    eligible = [pipeline for pipeline in module.pipelines if pipeline.eligible]
    if len(eligible) < 2:
        return _fit(eligible[0], module, now) if eligible else None
    fits = [_fit(pipeline, module, now) for pipeline in eligible]
    return min(
        fits,
        key=lambda fit: (
            fit.path is None,
            fit.batch_size < fit.limit,
            probe(fit.pipeline, fit.pipeline.batch_size, now).waiting,
        ),
    )


def _fit(pipeline: PipelineState, module: ModuleState, now: int) -> _Fit:
    deadline = module.queue[0].deadline
    limit = min(len(module.queue), pipeline.batch_size)
    path = probe(pipeline, limit, now)
    if path.finish <= deadline:
        return _Fit(pipeline, limit, limit, path)
    fits, fails, best = 0, limit, None
    while fails - fits > 1:
        middle = (fits + fails) // 2
        path = probe(pipeline, middle, now)
        if path.finish <= deadline:
            fits, best = middle, path
        else:
            fails = middle
    return _Fit(pipeline, fits, limit, best)


def _hold(module: ModuleState, now: int, dropped: list[Dropped]) -> None:
    """Without workers, requests wait until not even an idle pipeline could serve them in time."""
    queue = module.queue
    least = module.least_micros()
    while queue and queue[0].deadline - least < now:
        dropped += [(request, DropReason.NO_WORKERS) for request in queue.take(1)]
    module.due = queue[0].deadline - least + 1 if queue else None
    module.foreseen = None
    module.blocked_until = 0
