"""The search for the path on which a batch ends first, given the reservations (PPipe, section 5.4, Algorithm 2)."""

from mypy_extensions import mypyc_attr

from partita_runtime.scheduling.modules.pipeline_state import PipelineState
from partita_runtime.scheduling.workers.pools import Worker, WorkerPool
from partita_runtime.scheduling.workers.timeline import earliest_joint


@mypyc_attr(acyclic=True)
class Leg:
    """One stage of a path, with the transfer to it."""

    __slots__ = ("length", "start", "transfer_length", "transfer_start", "worker")

    def __init__(self, worker: Worker, start: int, length: int, transfer_start: int, transfer_length: int) -> None:
        self.worker = worker
        self.start = start
        self.length = length
        self.transfer_start = transfer_start
        self.transfer_length = transfer_length
        """0 for the first stage, and if no transfer is needed."""


@mypyc_attr(acyclic=True)
class WorkerPath:
    """A worker and a start for every stage; nothing is reserved yet."""

    __slots__ = ("finish", "initial_wait", "legs", "waiting")

    def __init__(self, legs: list[Leg], finish: int, initial_wait: int, waiting: int) -> None:
        self.legs = legs
        self.finish = finish
        self.initial_wait = initial_wait
        """Microseconds spent waiting for the first worker."""
        self.waiting = waiting
        """Microseconds spent waiting for workers and links, the first worker included."""


def find_path(pipeline: PipelineState, batch_size: int, now: int, first: Worker | None = None) -> WorkerPath:
    """Choose, stage by stage, the worker that ends the batch first; the lowest number among equals.

    A batch dispatched `now` can start after the pipeline's delay. The first stage starts after all reservations of its
    worker: batches are dispatched only when they can start, so first stages leave no gaps. With `first` the first
    stage is on that worker. The pipeline must be eligible.
    """
    at = now + pipeline.delay(batch_size)
    stages = pipeline.stages
    length = stages[0].latency[batch_size - 1]
    if first is None:
        index = stages[0].pool.index()
        worker = index.worker(index.soonest(at))
    else:
        worker = first
    start = max(at, worker.tail)
    initial_wait = waiting = start - at
    at = start + length
    legs = [Leg(worker, start, length, start, 0)]
    for number in range(1, len(stages)):
        stage = stages[number]
        leg = _next_leg(stage.pool, worker, at, stage.transfer[batch_size - 1], stage.latency[batch_size - 1])
        worker = leg.worker
        finish = leg.start + leg.length
        waiting += finish - at - leg.transfer_length - leg.length
        at = finish
        legs.append(leg)
    return WorkerPath(legs, at + pipeline.margin[batch_size - 1], initial_wait, waiting)


def earliest_finish(pipeline: PipelineState, batch_size: int, now: int) -> int:
    """The end of a batch: `find_path(...).finish`, computed faster for pipelines of one stage."""
    stages = pipeline.stages
    if len(stages) > 1:
        return find_path(pipeline, batch_size, now).finish
    at = now + pipeline.delay(batch_size)
    free = stages[0].pool.index().free
    if free.first_free(at) < 0:
        at = free.least()
    return at + stages[0].latency[batch_size - 1] + pipeline.margin[batch_size - 1]


def _next_leg(pool: WorkerPool, source: Worker, at: int, transfer: int, length: int) -> Leg:
    """From `source`, which ends at `at`, to the worker of the next stage that ends first.

    Searched in this order: workers on the same node, workers without reservations, the worker that is free first, and
    workers with a gap between reservations. The first one in this order is chosen among equals.
    """
    index = pool.index()
    best: Leg | None = None
    soonest = free_from = at
    if transfer:
        for worker in source.node.workers:
            if pool in worker.pools:
                best = _better(best, source, worker, at, transfer, length)
                if best.start == at:
                    return best
        soonest = source.node.uplink.earliest(at, transfer) + transfer  # no worker on another node is sooner
        if best is None:
            free_from = soonest
        elif best.start <= soonest:
            return best
    number = index.free.first_free(free_from)
    while number >= 0:
        best = _better(best, source, index.worker(number), at, transfer, length)
        if best.start <= soonest:
            return best
        number = index.free.first_free(free_from, number + 1)
    best = _better(best, source, index.worker(index.soonest(free_from)), at, transfer, length)
    number = 0
    while best.start > soonest:
        number = index.next_with_gap(number, best.start, soonest + length)
        if number < 0:
            break
        best = _better(best, source, index.worker(number), at, transfer, length)
        number += 1
    return best


def _better(best: Leg | None, source: Worker, worker: Worker, at: int, transfer: int, length: int) -> Leg:
    """The best leg so far, or the one to `worker` if that starts sooner."""
    sent = at
    if transfer == 0 or worker.node is source.node:
        transfer = 0
    else:
        sent = earliest_joint(source.node.uplink, worker.node.downlink, at, transfer)
    start = worker.earliest(sent + transfer, length)
    if best is not None and best.start <= start:
        return best
    return Leg(worker, start, length, sent, transfer)
