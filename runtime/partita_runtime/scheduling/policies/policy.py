"""The interface of a batching policy: the rule for which batch is dispatched next, where, and when."""

from abc import ABC, abstractmethod

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.modules.load import Load
from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.modules.pipeline_state import PipelineState
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.reservations.dispatched_batches import DispatchedBatch, DispatchedBatches
from partita_runtime.scheduling.reservations.path_search import WorkerPath
from partita_runtime.scheduling.workers.free_index import NEVER

Dropped = tuple[QueuedRequest, DropReason]


class Candidate:
    """A batch that may be dispatched now."""

    __slots__ = ("path", "pipeline", "preempts", "requests", "urgency")

    def __init__(
        self,
        pipeline: PipelineState,
        requests: list[QueuedRequest],
        path: WorkerPath,
        urgency: int,
        preempts: DispatchedBatch | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.requests = requests
        """Requests of the module's queue, at most the pipeline's batch size."""
        self.path = path
        self.urgency = urgency
        """The candidate with the least value is dispatched first."""
        self.preempts = preempts
        """A running batch to stop in favour of this one; its requests are queued again."""


class PolicyContext:
    """What the policies of a plan can read, besides the modules."""

    __slots__ = ("batches", "load", "modules")

    def __init__(self, modules: int, load: Load, batches: DispatchedBatches) -> None:
        self.modules = modules
        """The number of modules; `ModuleState.order` counts from 0."""
        self.load = load
        self.batches = batches


class Policy(ABC):
    """The rule of one system; the core does reservations, corrections and retries for all policies.

    One object serves all modules of a plan that use the policy, and it owns the state that it keeps of them.
    """

    def __init__(self, context: PolicyContext) -> None:
        self.context = context

    @abstractmethod
    def arrived(self, module: ModuleState, request: QueuedRequest, now: int) -> int:
        """When to evaluate a module whose queue `request` has just joined."""

    @abstractmethod
    def candidate(self, module: ModuleState, now: int, dropped: list[Dropped]) -> Candidate | None:
        """The batch to dispatch now; if there is none, the time of the next evaluation is in `module.due`.

        Requests that are given up move from the queue to `dropped`. A candidate may not be dispatched: another module
        may get the workers first, and the policy is then called again.
        """

    def depends_on_reservations(self, module: ModuleState) -> bool:
        """Whether the next batch of a module may change when another batch ends earlier or later than reserved."""
        return True

    def early_micros(self, module: ModuleState) -> int:
        """How long before its due time a module may dispatch if few workers are idle (microseconds)."""
        return 0

    def wait_for_requests(self, module: ModuleState) -> None:
        """The queue is empty: evaluate the module at the next arrival."""
        module.due = NEVER

    def wait_for_workers(self, module: ModuleState, now: int, dropped: list[Dropped]) -> None:
        """No pipeline is eligible: keep requests until even an idle pipeline could not serve them in time."""
        queue = module.queue
        least = module.least_micros()
        while queue.waiting and queue.waiting[0].deadline - least < now:
            dropped.append((queue.take(1)[0], DropReason.NO_WORKERS))
        module.due = queue.waiting[0].deadline - least + 1 if queue.waiting else NEVER
