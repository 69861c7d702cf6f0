"""The largest batch that meets the earliest deadline, and policies that dispatch it."""

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.modules.pipeline_state import PipelineState
from partita_runtime.scheduling.policies.policy import Candidate, Dropped, Policy, PolicyContext
from partita_runtime.scheduling.reservations.path_search import WorkerPath, find_path


class FeasibleBatch:
    """The largest batch that meets the earliest deadline on one pipeline."""

    __slots__ = ("batch_size", "free_from", "limit", "path", "pipeline")

    def __init__(self, pipeline: PipelineState, batch_size: int, limit: int, path: WorkerPath) -> None:
        self.pipeline = pipeline
        self.batch_size = batch_size
        self.limit = limit
        """The largest batch that the queue and the plan allow."""
        self.path = path
        self.free_from = path.legs[0].start - pipeline.delay(batch_size)
        """A batch dispatched at this time or later starts without waiting."""

    def candidate(self, module: ModuleState, now: int) -> Candidate:
        """The batch, with its latest dispatch time as urgency: the last time at which it meets the deadline."""
        queue = module.queue
        latest = now + queue.waiting[0].deadline - self.path.finish
        return Candidate(self.pipeline, queue.front(self.batch_size), self.path, latest)


class InfeasiblePipeline:
    """A pipeline on which even the oldest request alone would be late."""

    __slots__ = ("pipeline",)

    def __init__(self, pipeline: PipelineState) -> None:
        self.pipeline = pipeline


class Outlook:
    """The result of a policy's last evaluation of one module."""

    __slots__ = ("blocked", "blocked_until", "early", "pipeline", "waiting")

    def __init__(self) -> None:
        self.pipeline: PipelineState | None = None
        """The pipeline of the next batch; None if unknown."""
        self.blocked = False
        """Whether no path was free."""
        self.blocked_until = 0
        """The time at which the first path becomes free."""
        self.waiting = 0
        """Time that the next batch would wait between its stages (microseconds)."""
        self.early = 0
        """How long before its frontrun the batch may be dispatched if few workers are idle (microseconds)."""


class FeasibleBatchPolicy(Policy):
    """A policy that dispatches the largest feasible batch, and keeps its outlook on every module."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._outlooks = [Outlook() for _ in range(context.modules)]

    def depends_on_reservations(self, module: ModuleState) -> bool:
        """False for a module with one pipeline of one stage that waits for more requests: a worker is free for it."""
        outlook = self._outlooks[module.order]
        pipeline = outlook.pipeline
        return pipeline is None or outlook.blocked or len(module.pipelines) > 1 or len(pipeline.stages) > 1

    def early_micros(self, module: ModuleState) -> int:
        """How long before its due time a module may dispatch if few workers are idle (microseconds)."""
        return self._outlooks[module.order].early

    def wait_for_requests(self, module: ModuleState) -> None:
        """The queue is empty: evaluate the module at the next arrival."""
        super().wait_for_requests(module)
        self._outlooks[module.order].pipeline = None

    def wait_for_workers(self, module: ModuleState, now: int, dropped: list[Dropped]) -> None:
        """No pipeline is eligible: keep requests until even an idle pipeline could not serve them in time."""
        super().wait_for_workers(module, now, dropped)
        outlook = self._outlooks[module.order]
        outlook.pipeline = None
        outlook.blocked_until = 0

    def wait_until(self, module: ModuleState, batch: FeasibleBatch, due: int) -> None:
        """Evaluate the module at `due`; until then, `batch` is the outlook."""
        path, pipeline = batch.path, batch.pipeline
        module.due = due
        outlook = self._outlooks[module.order]
        outlook.blocked = path.initial_wait > 0
        outlook.blocked_until = path.legs[0].start - pipeline.delay(pipeline.batch_size)
        outlook.pipeline = pipeline
        outlook.waiting = path.waiting - path.initial_wait

    def feasible_batch(self, module: ModuleState, now: int, dropped: list[Dropped]) -> FeasibleBatch | None:
        """The best batch, after requests that would be late are dropped; None if there is nothing to dispatch."""
        while module.queue.waiting:
            batch = best_batch(module, now)
            if batch is None:
                self.wait_for_workers(module, now, dropped)
                return None
            if isinstance(batch, FeasibleBatch):
                return batch
            drop_oldest(module, batch, dropped)
        self.wait_for_requests(module)
        return None


def best_batch(module: ModuleState, now: int) -> FeasibleBatch | InfeasiblePipeline | None:
    """The pipeline for the next batch, with the largest batch for it; None if no pipeline is eligible.

    Preferred are pipelines on which the deadline does not shorten the batch, then those with the shortest wait for a
    batch of the planned size (PPipe, Algorithm 1), then the first one in the plan.
    """
    if len(module.pipelines) == 1:
        only = module.pipelines[0]
        return _largest_batch(only, module, now) if only.eligible else None
    best: FeasibleBatch | InfeasiblePipeline | None = None
    best_preference, best_waiting = 0, -1
    for pipeline in module.pipelines:
        if not pipeline.eligible:
            continue
        batch = _largest_batch(pipeline, module, now)
        preference = _preference(batch)
        if best is None or preference < best_preference:
            best, best_preference, best_waiting = batch, preference, -1
        elif preference == best_preference:
            if best_waiting < 0:
                best_waiting = _planned_wait(best, now)
            waiting = _planned_wait(batch, now)
            if waiting < best_waiting:
                best, best_waiting = batch, waiting
    return best


def drop_oldest(module: ModuleState, infeasible: InfeasiblePipeline, dropped: list[Dropped]) -> None:
    """Drop the oldest request, which would be late even alone."""
    oldest = module.queue.take(1)[0]
    infeasible.pipeline.doubt_correction(oldest.deadline - oldest.arrived)
    dropped.append((oldest, DropReason.TOO_LATE))


def _largest_batch(pipeline: PipelineState, module: ModuleState, now: int) -> FeasibleBatch | InfeasiblePipeline:
    waiting = module.queue.waiting
    deadline = waiting[0].deadline
    limit = len(waiting)
    if limit > pipeline.batch_size:
        limit = pipeline.batch_size
    path = find_path(pipeline, limit, now)
    if path.finish <= deadline:
        return FeasibleBatch(pipeline, limit, limit, path)
    feasible, infeasible = 0, limit
    best: WorkerPath | None = None
    while infeasible - feasible > 1:
        middle = (feasible + infeasible) // 2
        path = find_path(pipeline, middle, now)
        if path.finish <= deadline:
            feasible, best = middle, path
        else:
            infeasible = middle
    return InfeasiblePipeline(pipeline) if best is None else FeasibleBatch(pipeline, feasible, limit, best)


def _preference(batch: FeasibleBatch | InfeasiblePipeline) -> int:
    """0 if the batch is as large as it can be, 1 if the deadline shortens it, 2 if no batch is in time."""
    if isinstance(batch, InfeasiblePipeline):
        return 2
    return 1 if batch.batch_size < batch.limit else 0


def _planned_wait(batch: FeasibleBatch | InfeasiblePipeline, now: int) -> int:
    """How long a batch of the planned size would wait (microseconds)."""
    pipeline = batch.pipeline
    if isinstance(batch, FeasibleBatch) and batch.batch_size == pipeline.batch_size:
        return batch.path.waiting
    return find_path(pipeline, pipeline.batch_size, now).waiting
