"""ELSA: the smallest slice that is fast enough (PARIS and ELSA, section IV-C, Algorithm 2)."""

from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.policies.feasible_batch import hold, rest
from partita_runtime.scheduling.policies.policy import Candidate, Dropped, Policy
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.queues.query import next_query
from partita_runtime.scheduling.reservations.path_search import Path, probe


class Elsa(Policy):
    """For queries that are batches themselves, on pipelines of unequal vGPUs.

    A query goes, on arrival, to the smallest vGPU on which its slack `SLA - alpha (T_wait + beta T_estimated)` is
    positive (Equation 2), that is, to the slowest pipeline that is in time; else to where it is done first. Of equal
    vGPUs the one that is free first takes it, where Algorithm 2 takes any that is in time. It waits there, behind what
    was there before; queries are neither joined nor dropped. A query is what arrived at one moment.
    """

    def __init__(self, alpha: float = 1.0, beta: float = 1.0) -> None:
        self._alpha = alpha
        self._beta = beta

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """At once: a query never waits for a decision."""
        return now

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The next query, on the vGPU that it will wait for."""
        eligible = module.eligible()
        if not module.queue.waiting:
            rest(module)
            return None
        if not eligible:
            hold(module, now, dropped)
            return None
        query = next_query(module, eligible)
        size, deadline = len(query), query[0].deadline
        able = [pipeline for pipeline in eligible if pipeline.batch_size >= size]
        smallest_first = sorted(able, key=lambda pipeline: -pipeline.total[size - 1])
        found = [(pipeline, probe(pipeline, size, now)) for pipeline in smallest_first]
        in_time = (each for each in found if self._slack(each[1], now, deadline) >= 0)
        pipeline, path = next(in_time, None) or min(found, key=lambda each: each[1].finish)
        return Candidate(pipeline, query, path, urgency=query[0].arrived)

    def _slack(self, path: Path, now: int, deadline: int) -> float:
        wait = path.waiting
        return deadline - now - self._alpha * (wait + self._beta * (path.finish - now - wait))
