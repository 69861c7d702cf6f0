"""Nexus: one queue per worker, and early drop (Shen et al., SOSP 2019, section 6; Symphony, sections 3 and 5.3)."""

from collections import defaultdict
from collections.abc import Sequence

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.policies.policy import Candidate, Dropped, Policy, PolicyContext
from partita_runtime.scheduling.policies.worker_queues import WorkerQueue, WorkerQueues
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.path_search import WorkerPath, find_path
from partita_runtime.scheduling.workers.free_index import NEVER


class Nexus(Policy):
    """Frontends distribute requests over backends in proportion to their throughput; each backend batches by itself.

    A free backend slides a window of the planned batch size over its queue, drops the requests before the first window
    that is in time, and runs that window (early drop). The model whose oldest request has waited longest comes first.
    The assignment of models to workers is part of the plan: use the plan and the batch sizes that Nexus would choose.
    """

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._worker_queues: defaultdict[str, WorkerQueues] = defaultdict(lambda: WorkerQueues(_least_received))

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """At once: its backend may be idle."""
        self._worker_queues[module.name].add(module, request)
        return now

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The next batch of a free backend of the module; the lowest number first."""
        queues = self._worker_queues[module.name].current(module)
        if not queues:
            self.wait_for_workers(module, now, dropped)
            return None
        module.due = NEVER
        for queue in queues:
            ready = now + queue.pipeline.delay(1)
            if not queue:
                continue
            if queue.worker.tail > ready:
                free = now + queue.worker.tail - ready
                module.due = min(module.due, free)
                continue
            found = _early_drop(queue, module, now, dropped)
            if found is not None:
                window, path = found
                return Candidate(queue.pipeline, window, path, urgency=window[0].arrived)
        return None


def _least_received(queues: Sequence[WorkerQueue]) -> WorkerQueue:
    """The queue that has received the fewest requests for its throughput."""
    return min(queues, key=lambda queue: (queue.received + 1) / _throughput(queue))


def _throughput(queue: WorkerQueue) -> float:
    pipeline = queue.pipeline
    return pipeline.throughput() / len(pipeline.stages[0].pool)


def _early_drop(
    queue: WorkerQueue, module: ModuleState, now: int, dropped: list[Dropped]
) -> tuple[list[QueuedRequest], WorkerPath] | None:
    """The first window that is in time; the most urgent request of each window before it is dropped."""
    module_queue = module.queue
    while window := queue.front(queue.pipeline.batch_size):
        path = find_path(queue.pipeline, len(window), now, queue.worker)
        most_urgent = window[0]
        for request in window:
            if request.precedes(most_urgent):
                most_urgent = request
        if path.finish <= most_urgent.deadline:
            return window, path
        module_queue.remove(most_urgent)
        alone = now + queue.pipeline.total[0] <= most_urgent.deadline
        dropped.append((most_urgent, DropReason.OVERLOAD if alone else DropReason.TOO_LATE))
    return None
