"""Requests that are bound to one worker from their arrival on, as where every worker has a queue of its own."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice

from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.pipelines import PipelineState
from partita_runtime.scheduling.pools import Worker
from partita_runtime.scheduling.queue import DeadlineQueue, QueuedRequest


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

    def front(self, queue: DeadlineQueue, count: int) -> list[QueuedRequest]:
        """The first `count` requests that are still in the module's queue."""
        waiting = self._waiting
        while waiting and next(iter(waiting)) not in queue:
            waiting.popitem(last=False)
        return list(islice((request for request in waiting if request in queue), count))

    def leave(self, queue: DeadlineQueue) -> list[QueuedRequest]:
        """Everybody who waits, for other lanes."""
        return self.front(queue, len(self._waiting))


class Lanes:
    """The lanes of one module; `choose` says to which of them a request goes."""

    __slots__ = ("_choose", "_homeless", "_lanes")

    def __init__(self, choose: Callable[[Sequence[Lane]], Lane]) -> None:
        self._choose = choose
        self._lanes: dict[tuple[PipelineState, Worker], Lane] = {}
        self._homeless: list[QueuedRequest] = []
        """Those who came while there was no lane."""

    def add(self, module: ModuleState, request: QueuedRequest) -> None:
        """Bind a request that joined the module's queue."""
        lanes = self.of(module)
        for lane in lanes:
            lane.forget(request)
        if lanes:
            self._choose(lanes).add(request)
        else:
            self._homeless.append(request)

    def of(self, module: ModuleState) -> list[Lane]:
        """The lanes as the workers are now; the requests of a worker that is gone are bound anew."""
        there = [(p, worker) for p in module.pipelines if p.eligible for worker in p.stages[0].pool]
        if list(self._lanes) != there:
            self._rearrange(module, there)
        return list(self._lanes.values())

    def _rearrange(self, module: ModuleState, there: Sequence[tuple[PipelineState, Worker]]) -> None:
        former = self._lanes
        level = min((lane.received for lane in former.values()), default=0.0)
        self._lanes = {key: former[key] if key in former else Lane(*key, level) for key in there}
        moving = [r for key, lane in former.items() if key not in self._lanes for r in lane.leave(module.queue)]
        moving += [request for request in self._homeless if request in module.queue]
        self._homeless = [] if self._lanes else moving
        for request in moving if self._lanes else ():
            self._choose(list(self._lanes.values())).add(request)
