"""Eager batching: whatever waits is dispatched as soon as a path is free (Symphony, section 3)."""

from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.policies.feasible_batch import FeasibleBatchPolicy
from partita_runtime.scheduling.policies.policy import Candidate, Dropped
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest


class Eager(FeasibleBatchPolicy):
    """Dispatches the largest batch that meets the earliest deadline to an idle worker; drops no request early."""

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """At once if a worker may be free; else when the first one becomes free."""
        outlook, queue = self._outlooks[module.order], module.queue.waiting
        if outlook.pipeline is None:
            return now if queue[0] is request else max(now, outlook.blocked_until)
        if queue[0].deadline - outlook.pipeline.total[0] < outlook.blocked_until:
            return now
        return outlook.blocked_until

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The largest batch that is in time, once a path is free."""
        batch = self.feasible_batch(module, now, dropped)
        if batch is None:
            return None
        if batch.free_from > now:
            self.wait_until(module, batch, batch.free_from)
            return None
        return batch.candidate(module, now)
