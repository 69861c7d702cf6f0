"""Nexus: a queue at every worker, and early drop (Shen et al., SOSP 2019, section 6; Symphony, sections 3 and 5.3)."""

from collections import defaultdict
from collections.abc import Sequence

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.policies.feasible_batch import hold
from partita_runtime.scheduling.policies.policy import Candidate, Dropped, Policy
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.queues.worker_queues import Lane, Lanes
from partita_runtime.scheduling.reservations.path_search import Path, probe
from partita_runtime.scheduling.workers.free_index import NEVER


class Nexus(Policy):
    """Frontends send requests to the backends in proportion to their throughput; each backend batches on its own.

    A backend that is free slides a window of the planned batch size over its queue, drops what is before the first
    request that leaves the window enough time, and runs the window (early drop). Of its models the one goes next whose
    oldest request has waited longest. Which model is on which worker is the planner's business: give it the plan and
    the batch sizes that Nexus would make.
    """

    def __init__(self) -> None:
        self._lanes: defaultdict[str, Lanes] = defaultdict(lambda: Lanes(_least_received))

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """At once: its backend may be idle."""
        self._lanes[module.name].add(module, request)
        return now

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """What a free backend of the module runs now; of several backends, the lowest number first."""
        lanes = self._lanes[module.name].of(module)
        if not lanes:
            hold(module, now, dropped)
            return None
        module.due = NEVER
        for lane in lanes:
            ready = now + lane.pipeline.delay(1)
            if not lane:
                continue
            if lane.worker.tail > ready:
                free = now + lane.worker.tail - ready
                module.due = min(module.due, free)
                continue
            found = _early_drop(lane, module, now, dropped)
            if found is not None:
                window, path = found
                return Candidate(lane.pipeline, window, path, urgency=window[0].arrived)
        return None


def _least_received(lanes: Sequence[Lane]) -> Lane:
    """The lane that got the fewest requests for its throughput."""
    return min(lanes, key=lambda lane: (lane.received + 1) / _throughput(lane))


def _throughput(lane: Lane) -> float:
    pipeline = lane.pipeline
    return pipeline.throughput() / len(pipeline.stages[0].pool)


def _early_drop(
    lane: Lane, module: ModuleState, now: int, dropped: list[Dropped]
) -> tuple[list[QueuedRequest], Path] | None:
    """The first window that is in time; what keeps one from it, mostly the oldest request, is dropped."""
    queue = module.queue
    while window := lane.front(lane.pipeline.batch_size):
        path = probe(lane.pipeline, len(window), now, lane.worker)
        most_urgent = window[0]
        for request in window:
            if request.precedes(most_urgent):
                most_urgent = request
        if path.finish <= most_urgent.deadline:
            return window, path
        queue.remove(most_urgent)
        alone = now + lane.pipeline.total[0] <= most_urgent.deadline
        dropped.append((most_urgent, DropReason.OVERLOAD if alone else DropReason.TOO_LATE))
    return None
