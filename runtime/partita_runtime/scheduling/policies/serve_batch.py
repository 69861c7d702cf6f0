"""Ray Serve's own batching: `@serve.batch` behind its router (`ray.serve.batching`)."""

from collections import defaultdict
from collections.abc import Sequence
from random import Random

from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.policies.policy import Candidate, Dropped, Policy, PolicyContext
from partita_runtime.scheduling.policies.worker_queues import WorkerQueue, WorkerQueues
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.path_search import find_path
from partita_runtime.scheduling.workers.free_index import NEVER


class ServeBatch(Policy):
    """A replica closes a batch when it is full or `wait` milliseconds after its first request, and runs them in turn.

    The router sends a request to the less loaded of two random replicas (the random numbers are the same in each run).
    A batch is also closed while the replica is busy: it then waits without growing. Deadlines are ignored.
    """

    def __init__(self, context: PolicyContext, wait_ms: float = 10.0) -> None:
        super().__init__(context)
        self._wait = round(wait_ms * 1000)
        self._random = Random(0)
        self._worker_queues: defaultdict[str, WorkerQueues] = defaultdict(lambda: WorkerQueues(self._less_loaded))

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """At once: the batch may be full."""
        self._worker_queues[module.name].add(module, request)
        return now

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The next batch to close; it starts after all others of its replica."""
        queues = self._worker_queues[module.name].current(module)
        if not queues:
            self.wait_for_workers(module, now, dropped)
            return None
        module.due = NEVER
        for queue in queues:
            requests = queue.front(queue.pipeline.batch_size)
            if not requests:
                continue
            closes = now if len(requests) == queue.pipeline.batch_size else requests[0].arrived + self._wait
            if closes <= now:
                path = find_path(queue.pipeline, len(requests), now, queue.worker)
                return Candidate(queue.pipeline, requests, path, urgency=closes)
            module.due = min(module.due, closes)
        return None

    def _less_loaded(self, queues: Sequence[WorkerQueue]) -> WorkerQueue:
        """The less loaded of two random queues; a closed batch counts as a full one."""
        two = self._random.sample(queues, min(2, len(queues)))
        return min(two, key=lambda queue: len(queue) + len(queue.worker.reservations) * queue.pipeline.batch_size)
