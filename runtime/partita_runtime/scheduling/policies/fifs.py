"""First idle, first serve: Triton's scheduling of queries to GPU instances (PARIS and ELSA, section III-C)."""

from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.policies.policy import Candidate, Dropped, Policy
from partita_runtime.scheduling.policies.query import next_query
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.path_search import find_path


class Fifs(Policy):
    """Assigns the next query to the worker that has been idle longest, regardless of its size.

    The requests of a call are one query; queries are neither merged nor dropped.
    """

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """At once: a worker may be idle."""
        return now

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The next query, once a worker is idle."""
        eligible = module.eligible()
        if not module.queue.waiting:
            self.wait_for_requests(module)
            return None
        if not eligible:
            self.wait_for_workers(module, now, dropped)
            return None
        query = next_query(module, eligible)
        able = [pipeline for pipeline in eligible if pipeline.batch_size >= len(query)]
        workers = [(worker, pipeline) for pipeline in able for worker in pipeline.stages[0].pool]
        idle = [(w, p) for w, p in workers if w.tail <= now + p.delay(len(query))]
        if not idle:
            module.due = min(w.tail - p.delay(len(query)) for w, p in workers)
            return None
        worker, pipeline = min(idle, key=lambda pair: pair[0].last_end)
        return Candidate(pipeline, query, find_path(pipeline, len(query), now, worker), urgency=query[0].arrived)
