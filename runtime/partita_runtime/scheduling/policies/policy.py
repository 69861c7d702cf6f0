"""What a batching policy is: the rule by which the core decides who goes next, with whom, where and when."""

from abc import ABC, abstractmethod

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.pipelines import PipelineState
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.dispatched import Batch
from partita_runtime.scheduling.reservations.path_search import Path

Dropped = tuple[QueuedRequest, DropReason]


class Candidate:
    """A batch that may be dispatched now."""

    __slots__ = ("path", "pipeline", "preempts", "requests", "urgency")

    def __init__(
        self,
        pipeline: PipelineState,
        requests: list[QueuedRequest],
        path: Path,
        urgency: int,
        preempts: Batch | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.requests = requests
        """Requests of the module's queue, at most as many as the pipeline's batch size."""
        self.path = path
        self.urgency = urgency
        """Of several candidates the one with the least goes first."""
        self.preempts = preempts
        """A running batch that has to make room; its requests are queued again."""


class Policy(ABC):
    """The part of the core that differs between systems; the core does the bookkeeping for all of them."""

    @abstractmethod
    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """When to look at a module whose queue `request` has just joined."""

    @abstractmethod
    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The batch to dispatch now, if any; else when to look again is in `module.due`.

        Requests that are given up leave the queue for `dropped`. It may be asked again before the candidate is
        dispatched, and another module may get the workers first.
        """
