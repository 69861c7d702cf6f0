"""What a batching policy is: the rule by which the core decides who goes next, with whom, where and when."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.flight import Batch
from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.pipelines import PipelineState
from partita_runtime.scheduling.probe import Path
from partita_runtime.scheduling.queue import QueuedRequest

Dropped = tuple[QueuedRequest, DropReason]


class Candidate(NamedTuple):
    """A batch that may be dispatched now."""

    pipeline: PipelineState
    requests: Sequence[QueuedRequest]
    """Requests of the module's queue, at most as many as the pipeline's batch size."""
    path: Path
    urgency: int
    """Of several candidates the one with the least goes first."""
    preempts: Batch | None = None
    """A running batch that has to make room; its requests are queued again."""


class Policy(Protocol):
    """The part of the core that differs between systems; the core does the bookkeeping for all of them."""

    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """When to look at a module whose queue `request` has just joined."""

    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The batch to dispatch now, if any; else when to look again is in `module.due`.

        Requests that are given up leave the queue for `dropped`. It may be asked again before the candidate is
        dispatched, and another module may get the workers first.
        """
