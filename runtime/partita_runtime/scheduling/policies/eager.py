"""Eager batching: whatever waits goes as soon as a path is free (Symphony, section 3)."""

from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.policies.feasible_batch import feasible_fit
from partita_runtime.scheduling.policies.policy import Candidate, Dropped, Policy
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest


class Eager(Policy):
    """The largest batch that meets the oldest deadline goes to an idle worker at once; nobody is given up early."""

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """At once, if a worker may be free; else when one becomes so."""
        pipeline, queue = module.foreseen, module.queue.waiting
        if pipeline is None:
            return now if queue[0] is request else max(now, module.blocked_until)
        if queue[0].deadline - pipeline.total[0] < module.blocked_until:
            return now
        return module.blocked_until

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The largest batch that is in time, once a path is free."""
        fit = feasible_fit(module, now, dropped)
        if fit is None:
            return None
        if fit.free_from > now:
            fit.wait(module, fit.free_from)
            return None
        return fit.candidate(module, now)
