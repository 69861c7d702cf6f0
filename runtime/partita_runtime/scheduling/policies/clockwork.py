"""Clockwork's scheduler (Gujarati et al., OSDI 2020, section 5.3; Symphony, section 3)."""

from partita_runtime.scheduling.fit import feasible_fit
from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.policy import Candidate, Dropped, Policy
from partita_runtime.scheduling.queue import QueuedRequest


class Clockwork(Policy):
    """Of all feasible batches of all models and sizes, the one whose latest start is the earliest goes first.

    For one model that is the largest batch that meets the oldest deadline. The controller keeps every worker supplied
    with `ahead` milliseconds of work, so that none idles while the next action is on its way: a batch is committed, and
    its size fixed, that long before it starts. With 0 it is eager batching. It has no notion of batching efficiency.
    """

    def __init__(self, ahead_ms: float = 5.0) -> None:
        self._ahead = round(ahead_ms * 1000)

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """At once: a worker may have room for an action."""
        return now

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The largest batch that is in time, once a worker has less than `ahead` of work left."""
        fit = feasible_fit(module, now, dropped)
        if fit is None:
            return None
        due = fit.free_from - self._ahead
        if due > now:
            fit.wait(module, due)
            return None
        return fit.candidate(module, now)
