"""The largest batch that meets the oldest deadline, and what happens when there is none."""

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.pipelines import PipelineState
from partita_runtime.scheduling.policies.policy import Candidate, Dropped
from partita_runtime.scheduling.reservations.path_search import Path, probe
from partita_runtime.scheduling.workers.free_index import NEVER


class Fit:
    """The largest batch that meets the oldest deadline on one pipeline."""

    __slots__ = ("batch_size", "free_from", "limit", "path", "pipeline")

    def __init__(self, pipeline: PipelineState, batch_size: int, limit: int, path: Path) -> None:
        self.pipeline = pipeline
        self.batch_size = batch_size
        self.limit = limit
        """What the queue and the plan would allow."""
        self.path = path
        self.free_from = path.legs[0].start - pipeline.delay(batch_size)
        """The moment from which the batch, dispatched then, starts at once."""

    def candidate(self, module: ModuleState, now: int) -> Candidate:
        """The batch, as urgent as its latest moment is close: the last one at which it still meets the deadline."""
        queue = module.queue
        latest = now + queue.waiting[0].deadline - self.path.finish
        return Candidate(self.pipeline, queue.front(self.batch_size), self.path, latest)

    def wait(self, module: ModuleState, until: int) -> None:
        """Look at the module again at a time, with this fit in mind."""
        path = self.path
        module.due = until
        module.blocked = path.initial_wait > 0
        module.blocked_until = path.legs[0].start - self.pipeline.delay(self.pipeline.batch_size)
        module.foreseen = self.pipeline
        module.waiting = path.waiting - path.initial_wait


class Misfit:
    """A pipeline on which not even the oldest request alone is in time."""

    __slots__ = ("pipeline",)

    def __init__(self, pipeline: PipelineState) -> None:
        self.pipeline = pipeline


def best_fit(module: ModuleState, now: int) -> Fit | Misfit | None:
    """The pipeline for the next batch, and the largest batch for it; None if no pipeline is eligible.

    Preferred are pipelines on which the oldest deadline leaves the batch whole, then those that wait least for a batch
    of the planned size (PPipe, Algorithm 1), then those that come first in the plan.
    """
    if len(module.pipelines) == 1:
        only = module.pipelines[0]
        return _fit(only, module, now) if only.eligible else None
    best: Fit | Misfit | None = None
    best_rank, best_waiting = 0, -1
    for pipeline in module.pipelines:
        if not pipeline.eligible:
            continue
        fit = _fit(pipeline, module, now)
        rank = _rank(fit)
        if best is None or rank < best_rank:
            best, best_rank, best_waiting = fit, rank, -1
        elif rank == best_rank:
            if best_waiting < 0:
                best_waiting = _planned_wait(best, now)
            waiting = _planned_wait(fit, now)
            if waiting < best_waiting:
                best, best_waiting = fit, waiting
    return best


def feasible_fit(module: ModuleState, now: int, dropped: list[Dropped]) -> Fit | None:
    """The best fit, after the requests that cannot be in time any more were given up; None if nothing can go."""
    while module.queue.waiting:
        fit = best_fit(module, now)
        if fit is None:
            hold(module, now, dropped)
            return None
        if isinstance(fit, Fit):
            return fit
        give_up_oldest(module, fit, now, dropped)
    rest(module)
    return None


def give_up_oldest(module: ModuleState, misfit: Misfit, now: int, dropped: list[Dropped]) -> None:
    """The oldest request would be late even alone."""
    misfit.pipeline.doubt_correction(module.queue.waiting[0].deadline - now)
    dropped.append((module.queue.take(1)[0], DropReason.TOO_LATE))


def rest(module: ModuleState) -> None:
    """Nobody waits: look again when somebody arrives."""
    module.due = NEVER
    module.foreseen = None


def hold(module: ModuleState, now: int, dropped: list[Dropped]) -> None:
    """Without workers, requests wait until not even an idle pipeline could serve them in time."""
    queue = module.queue
    least = module.least_micros()
    while queue.waiting and queue.waiting[0].deadline - least < now:
        dropped.append((queue.take(1)[0], DropReason.NO_WORKERS))
    module.due = queue.waiting[0].deadline - least + 1 if queue.waiting else NEVER
    module.foreseen = None
    module.blocked_until = 0


def _fit(pipeline: PipelineState, module: ModuleState, now: int) -> Fit | Misfit:
    waiting = module.queue.waiting
    deadline = waiting[0].deadline
    limit = len(waiting)
    if limit > pipeline.batch_size:
        limit = pipeline.batch_size
    path = probe(pipeline, limit, now)
    if path.finish <= deadline:
        return Fit(pipeline, limit, limit, path)
    fits, fails = 0, limit
    best: Path | None = None
    while fails - fits > 1:
        middle = (fits + fails) // 2
        path = probe(pipeline, middle, now)
        if path.finish <= deadline:
            fits, best = middle, path
        else:
            fails = middle
    return Misfit(pipeline) if best is None else Fit(pipeline, fits, limit, best)


def _rank(fit: Fit | Misfit) -> int:
    """0 where the batch is whole, 1 where the deadline cuts it, 2 where nobody is in time."""
    if isinstance(fit, Misfit):
        return 2
    return 1 if fit.batch_size < fit.limit else 0


def _planned_wait(fit: Fit | Misfit, now: int) -> int:
    """How long a batch of the planned size would wait."""
    pipeline = fit.pipeline
    if isinstance(fit, Fit) and fit.batch_size == pipeline.batch_size:
        return fit.path.waiting
    return probe(pipeline, pipeline.batch_size, now).waiting
