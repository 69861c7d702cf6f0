"""Batching by a timeout, as in TensorFlow Serving and Triton (Symphony, section 3.4)."""

from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.policies.feasible_batch import feasible_fit
from partita_runtime.scheduling.policies.policy import Candidate, Dropped, Policy
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest


class Timeout(Policy):
    """A batch goes when it is full, or when its oldest request has waited for a share of its time.

    Symphony's Algorithm 1 with `exec = max(now, a + k)`: a is the arrival of the oldest request, k a percentage of its
    time from arrival to deadline. It goes no later than at its latest moment, though: a timeout that is too long
    makes for idle GPUs, not for missed deadlines.
    """

    def __init__(self, percent: float = 40.0) -> None:
        self._share = percent / 100

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """At once: the batch may be full."""
        return now

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The largest batch that is in time, if it is full or has waited, once a path is free."""
        fit = feasible_fit(module, now, dropped)
        if fit is None:
            return None
        candidate = fit.candidate(module, now)
        due = fit.free_from
        if fit.batch_size < fit.pipeline.batch_size:
            oldest = module.queue.waiting[0]
            waited = oldest.arrived + round(self._share * (oldest.deadline - oldest.arrived))
            due = max(due, min(waited, candidate.urgency))
        if due > now:
            fit.wait(module, due)
            return None
        return candidate
