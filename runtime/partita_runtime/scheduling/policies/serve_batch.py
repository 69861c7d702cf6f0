"""Ray Serve's own batching: `@serve.batch` behind its router (`ray.serve.batching`)."""

from collections import defaultdict
from collections.abc import Sequence
from random import Random

from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.policies.feasible_batch import hold
from partita_runtime.scheduling.policies.policy import Candidate, Dropped, Policy
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.queues.worker_queues import Lane, Lanes
from partita_runtime.scheduling.reservations.path_search import probe
from partita_runtime.scheduling.workers.free_index import NEVER


class ServeBatch(Policy):
    """A replica closes a batch when it is full or `wait` milliseconds after its first request, and runs them in turn.

    The router gives a request to the less loaded of two replicas drawn at random (the draws are the same each time).
    A batch is also closed while the replica is busy: it then waits as it is. Deadlines play no part.
    """

    def __init__(self, wait_ms: float = 10.0) -> None:
        self._wait = round(wait_ms * 1000)
        self._random = Random(0)
        self._lanes: defaultdict[str, Lanes] = defaultdict(lambda: Lanes(self._less_loaded))

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """At once: the batch may be full."""
        self._lanes[module.name].add(module, request)
        return now

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The next batch to be closed; it starts behind all others of its replica."""
        lanes = self._lanes[module.name].of(module)
        if not lanes:
            hold(module, now, dropped)
            return None
        module.due = NEVER
        for lane in lanes:
            requests = lane.front(lane.pipeline.batch_size)
            if not requests:
                continue
            closes = now if len(requests) == lane.pipeline.batch_size else requests[0].arrived + self._wait
            if closes <= now:
                path = probe(lane.pipeline, len(requests), now, lane.worker)
                return Candidate(lane.pipeline, requests, path, urgency=closes)
            module.due = min(module.due, closes)
        return None

    def _less_loaded(self, lanes: Sequence[Lane]) -> Lane:
        """The less loaded of two: a closed batch counts as a full one."""
        two = self._random.sample(lanes, min(2, len(lanes)))
        return min(two, key=lambda lane: len(lane) + len(lane.worker.reservations) * lane.pipeline.batch_size)
