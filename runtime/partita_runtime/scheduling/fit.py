"""The largest batch that meets the oldest deadline, and what happens when there is none."""

from typing import NamedTuple

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.pipelines import PipelineState
from partita_runtime.scheduling.policy import Candidate, Dropped
from partita_runtime.scheduling.probe import Path, probe


class Fit(NamedTuple):
    """The largest batch that meets the oldest deadline on one pipeline."""

    pipeline: PipelineState
    batch_size: int
    limit: int
    """What the queue and the plan would allow."""
    path: Path

    @property
    def free_from(self) -> int:
        """The moment from which the batch, dispatched then, starts at once."""
        return self.path.start - self.pipeline.delay(self.batch_size)

    def candidate(self, module: ModuleState, now: int) -> Candidate:
        """The batch, as urgent as its latest moment is close: the last one at which it still meets the deadline."""
        latest = now + module.queue[0].deadline - self.path.finish
        return Candidate(self.pipeline, module.queue.front(self.batch_size), self.path, latest)

    def wait(self, module: ModuleState, until: int) -> None:
        """Look at the module again at a time, with this fit in mind."""
        module.due = until
        module.blocked_until = self.path.start - self.pipeline.delay(self.pipeline.batch_size)
        module.foreseen = self.pipeline
        module.waiting = self.path.waiting - self.path.initial_wait


class Misfit(NamedTuple):
    """A pipeline on which not even the oldest request alone is in time."""

    pipeline: PipelineState


def best_fit(module: ModuleState, now: int) -> Fit | Misfit | None:
    """The pipeline for the next batch, and the largest batch for it; None if no pipeline is eligible.

    Preferred are pipelines on which the oldest deadline leaves the batch whole, then those that wait least for a batch
    of the planned size (PPipe, Algorithm 1), then those that come first in the plan.
    """
    eligible = [pipeline for pipeline in module.pipelines if pipeline.eligible]
    if len(eligible) < 2:
        return _fit(eligible[0], module, now) if eligible else None
    return min(
        (_fit(pipeline, module, now) for pipeline in eligible),
        key=lambda fit: (
            isinstance(fit, Misfit),
            isinstance(fit, Fit) and fit.batch_size < fit.limit,
            probe(fit.pipeline, fit.pipeline.batch_size, now).waiting,
        ),
    )


def feasible_fit(module: ModuleState, now: int, dropped: list[Dropped]) -> Fit | None:
    """The best fit, after the requests that cannot be in time any more were given up; None if nothing can go."""
    queue = module.queue
    while queue:
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
    misfit.pipeline.doubt_correction(module.queue[0].deadline - now)
    dropped += [(request, DropReason.TOO_LATE) for request in module.queue.take(1)]


def rest(module: ModuleState) -> None:
    """Nobody waits: look again when somebody arrives."""
    module.due = None
    module.foreseen = None


def hold(module: ModuleState, now: int, dropped: list[Dropped]) -> None:
    """Without workers, requests wait until not even an idle pipeline could serve them in time."""
    queue = module.queue
    least = module.least_micros()
    while queue and queue[0].deadline - least < now:
        dropped += [(request, DropReason.NO_WORKERS) for request in queue.take(1)]
    module.due = queue[0].deadline - least + 1 if queue else None
    module.foreseen = None
    module.blocked_until = 0


def _fit(pipeline: PipelineState, module: ModuleState, now: int) -> Fit | Misfit:
    deadline = module.queue[0].deadline
    limit = min(len(module.queue), pipeline.batch_size)
    path = probe(pipeline, limit, now)
    if path.finish <= deadline:
        return Fit(pipeline, limit, limit, path)
    fits, fails, best = 0, limit, None
    while fails - fits > 1:
        middle = (fits + fails) // 2
        path = probe(pipeline, middle, now)
        if path.finish <= deadline:
            fits, best = middle, path
        else:
            fails = middle
    return Misfit(pipeline) if best is None else Fit(pipeline, fits, limit, best)
