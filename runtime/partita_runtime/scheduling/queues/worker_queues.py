"""Requests that are bound to one worker from their arrival on, as where every worker has a queue of its own."""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.pipelines import PipelineState
from partita_runtime.scheduling.queues.deadline_queue import QueuedRequest
from partita_runtime.scheduling.workers.pools import Worker


class Lane:
    """The queue of one worker of a pipeline's first stage, in order of arrival."""

    __slots__ = ("_waiting", "pipeline", "received", "worker")

    def __init__(self, pipeline: PipelineState, worker: Worker, received: float) -> None:
        self.pipeline = pipeline
        self.worker = worker
        self.received = received
        """Requests that it was given so far."""
        self._waiting: OrderedDict[QueuedRequest, None] = OrderedDict()

    def __len__(self) -> int:
        """Who waits, at most: some may have left the module's queue."""
        return len(self._waiting)

    def add(self, request: QueuedRequest) -> None:
        """One more request."""
        self._waiting[request] = None
        self.received += 1

    def forget(self, request: QueuedRequest) -> None:
        """The request was here before, perhaps, and was dispatched: if it is back, it need not be."""
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

    def leave(self) -> list[QueuedRequest]:
        """Everybody who waits, for other lanes."""
        return [request for request in self._waiting if request.waits]


class Lanes:
    """The lanes of one module; `choose` says to which of them a request goes."""

    __slots__ = ("_changes", "_choose", "_homeless", "_in_order", "_lanes")

    def __init__(self, choose: Callable[[Sequence[Lane]], Lane]) -> None:
        self._choose = choose
        self._lanes: dict[tuple[PipelineState, Worker], Lane] = {}
        self._in_order: list[Lane] = []
        self._changes = -1
        """Of the pools, when they were last arranged."""
        self._homeless: list[QueuedRequest] = []
        """Those who came while there was no lane."""

    def add(self, module: ModuleState, request: QueuedRequest) -> None:
        """Bind a request that joined the module's queue."""
        lanes = self.of(module)
        if request.batch_id >= 0:
            for lane in lanes:
                lane.forget(request)
        if lanes:
            self._choose(lanes).add(request)
        else:
            self._homeless.append(request)

    def of(self, module: ModuleState) -> list[Lane]:
        """The lanes as the workers are now; the requests of a worker that is gone are bound anew."""
        changes = sum([stage.pool.changes for pipeline in module.pipelines for stage in pipeline.stages])
        if changes != self._changes:
            self._changes = changes
            self._rearrange([(p, worker) for p in module.eligible() for worker in p.stages[0].pool])
        return self._in_order

    def _rearrange(self, there: Sequence[tuple[PipelineState, Worker]]) -> None:
        former = self._lanes
        level = min([lane.received for lane in former.values()], default=0.0)
        self._lanes = {key: former[key] if key in former else Lane(key[0], key[1], level) for key in there}
        self._in_order = list(self._lanes.values())
        moving = [r for key, lane in former.items() if key not in self._lanes for r in lane.leave()]
        moving += [request for request in self._homeless if request.waits]
        self._homeless = [] if self._lanes else moving
        for request in moving if self._lanes else ():
            self._choose(self._in_order).add(request)
