"""Batching by a timeout, as in TensorFlow Serving and Triton (Symphony, section 3.4)."""

from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.policies.feasible_batch import FeasibleBatchPolicy
from partita_runtime.scheduling.policies.policy import Candidate, Dropped, PolicyContext
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest


class Timeout(FeasibleBatchPolicy):
    """Dispatches a batch that is full, or whose oldest request has waited for a share of its time.

    Symphony's Algorithm 1 with `exec = max(now, a + k)`: a is the arrival of the oldest request, k a percentage of its
    time from arrival to deadline. But a batch is dispatched at its latest dispatch time at the latest: a timeout that
    is too long causes idle GPUs, not missed deadlines.
    """

    def __init__(self, context: PolicyContext, percent: float = 40.0) -> None:
        super().__init__(context)
        self._share = percent / 100

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """At once: the batch may be full."""
        return now

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The largest batch that is in time, if it is full or has waited, once a path is free."""
        batch = self.feasible_batch(module, now, dropped)
        if batch is None:
            return None
        candidate = batch.candidate(module, now)
        due = batch.free_from
        if batch.batch_size < batch.pipeline.batch_size:
            oldest = module.queue.waiting[0]
            timeout = oldest.arrived + round(self._share * (oldest.deadline - oldest.arrived))
            due = max(due, min(timeout, candidate.urgency))
        if due > now:
            self.wait_until(module, batch, due)
            return None
        return candidate
