"""Queues of single workers: a request is bound to one worker when it arrives."""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.modules.pipeline_state import PipelineState
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.workers.pools import Worker


class WorkerQueue:
    """The queue of one worker of a pipeline's first stage, in order of arrival."""

    __slots__ = ("_waiting", "pipeline", "received", "worker")

    def __init__(self, pipeline: PipelineState, worker: Worker, received: float) -> None:
        self.pipeline = pipeline
        self.worker = worker
        self.received = received
        """Requests that it has received so far."""
        self._waiting: OrderedDict[QueuedRequest, None] = OrderedDict()

    def __len__(self) -> int:
        """An upper bound of the requests that wait: some may have left the module's queue."""
        return len(self._waiting)

    def add(self, request: QueuedRequest) -> None:
        """Append one request."""
        self._waiting[request] = None
        self.received += 1

    def forget(self, request: QueuedRequest) -> None:
        """Remove a request that may have been here before it was dispatched, so that it can join another queue."""
        self._waiting.pop(request, None)

    def front(self, count: int) -> list[QueuedRequest]:
        """The first `count` requests that are still in the module's queue."""
        waiting = self._waiting
        while waiting and not next(iter(waiting)).waits:
            waiting.popitem(last=False)
        front: list[QueuedRequest] = []
        for request in waiting:
            if request.waits:
                front.append(request)
                if len(front) == count:
                    break
        return front

    def waiting(self) -> list[QueuedRequest]:
        """All requests that still wait."""
        return [request for request in self._waiting if request.waits]


class WorkerQueues:
    """The worker queues of one module; `choose` picks the queue of a request."""

    __slots__ = ("_changes", "_choose", "_in_order", "_queues", "_unassigned")

    def __init__(self, choose: Callable[[Sequence[WorkerQueue]], WorkerQueue]) -> None:
        self._choose = choose
        self._queues: dict[tuple[PipelineState, Worker], WorkerQueue] = {}
        self._in_order: list[WorkerQueue] = []
        self._changes = -1
        """Number of changes of the pools when the queues were last arranged."""
        self._unassigned: list[QueuedRequest] = []
        """Requests that arrived while there was no queue."""

    def add(self, module: ModuleState, request: QueuedRequest) -> None:
        """Bind a request that joined the module's queue."""
        queues = self.current(module)
        if request.batch_id >= 0:
            for queue in queues:
                queue.forget(request)
        if queues:
            self._choose(queues).add(request)
        else:
            self._unassigned.append(request)

    def current(self, module: ModuleState) -> list[WorkerQueue]:
        """The queues of the present workers; requests of a worker that is gone are bound to another one."""
        changes = sum([stage.pool.changes for pipeline in module.pipelines for stage in pipeline.stages])
        if changes != self._changes:
            self._changes = changes
            self._rearrange([(p, worker) for p in module.eligible() for worker in p.stages[0].pool])
        return self._in_order

    def _rearrange(self, present: Sequence[tuple[PipelineState, Worker]]) -> None:
        former = self._queues
        level = min([queue.received for queue in former.values()], default=0.0)
        self._queues = {key: former[key] if key in former else WorkerQueue(key[0], key[1], level) for key in present}
        self._in_order = list(self._queues.values())
        moving = [r for key, queue in former.items() if key not in self._queues for r in queue.waiting()]
        moving += [request for request in self._unassigned if request.waits]
        self._unassigned = [] if self._queues else moving
        for request in moving if self._queues else ():
            self._choose(self._in_order).add(request)
