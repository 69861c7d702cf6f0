"""ELSA: the smallest slice that is fast enough (PARIS and ELSA, section IV-C, Algorithm 2)."""

from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.policies.policy import Candidate, Dropped, Policy, PolicyContext
from partita_runtime.scheduling.policies.query import next_query
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.path_search import WorkerPath, find_path


class Elsa(Policy):
    """Each query is one batch. The pipelines have vGPUs of different sizes. The requests of a call are one query.

    On arrival, a query goes to the smallest vGPU that is in time, that is, to the slowest pipeline on which its slack
    `SLA - alpha (T_wait + beta T_estimated)` is at least 0 (Equation 2: above 0). If every pipeline is late, the query
    goes to the one on which it ends first. Among equal vGPUs it goes to the one that is free first (Algorithm 2: any
    that is in time). There it waits behind earlier queries. Queries are neither merged nor dropped.
    """

    def __init__(self, context: PolicyContext, alpha: float = 1.0, beta: float = 1.0) -> None:
        super().__init__(context)
        self._alpha = alpha
        self._beta = beta

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """At once: a query never waits for a decision."""
        return now

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The next query, on its vGPU."""
        eligible = module.eligible()
        if not module.queue.waiting:
            self.wait_for_requests(module)
            return None
        if not eligible:
            self.wait_for_workers(module, now, dropped)
            return None
        query = next_query(module, eligible)
        size, deadline = len(query), query[0].deadline
        able = [pipeline for pipeline in eligible if pipeline.batch_size >= size]
        smallest_first = sorted(able, key=lambda pipeline: -pipeline.total[size - 1])
        found = [(pipeline, find_path(pipeline, size, now)) for pipeline in smallest_first]
        in_time = (each for each in found if self._slack(each[1], now, deadline) >= 0)
        pipeline, path = next(in_time, None) or min(found, key=lambda each: each[1].finish)
        return Candidate(pipeline, query, path, urgency=query[0].arrived)

    def _slack(self, path: WorkerPath, now: int, deadline: int) -> float:
        wait = path.waiting
        return deadline - now - self._alpha * (wait + self._beta * (path.finish - now - wait))
