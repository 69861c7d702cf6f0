"""The path on which a batch would be done soonest, given what is reserved (PPipe, section 5.4 and Algorithm 2)."""

from itertools import chain
from typing import NamedTuple

from partita_runtime.scheduling.pipelines import PipelineState
from partita_runtime.scheduling.pools import Worker, WorkerPool
from partita_runtime.scheduling.timeline import earliest_joint


class Leg(NamedTuple):
    """One stage of a path, with the transfer that leads to it."""

    worker: Worker
    start: int
    length: int
    transfer_start: int
    transfer_length: int
    """0 for the first stage, and where the network does not matter."""


class Path(NamedTuple):
    """A worker for every stage, and when; nothing is reserved yet."""

    legs: tuple[Leg, ...]
    finish: int
    initial_wait: int
    """Microseconds spent waiting for the first worker."""
    waiting: int
    """Microseconds spent waiting for workers and links, the first worker included."""

    @property
    def start(self) -> int:
        """When the first stage starts."""
        return self.legs[0].start


def probe(pipeline: PipelineState, batch_size: int, now: int, first: Worker | None = None) -> Path:
    """Choose, stage by stage, the worker that is done with the batch first; the lowest number among equals.

    A batch dispatched `now` can start after the pipeline's delay. The first stage is not fitted into gaps: it is
    dispatched only when it can start, so it leaves none; with `first` it is on that worker. The pipeline must be
    eligible.
    """
    at = now + pipeline.delay(batch_size)
    stage = pipeline.stages[0]
    length = stage.latency[batch_size - 1]
    worker, start = stage.pool.earliest_at_end(at) if first is None else (first, max(at, first.tail))
    initial_wait = waiting = start - at
    at = start + length
    legs = [Leg(worker, start, length, start, 0)]
    for stage, transfer in zip(pipeline.stages[1:], pipeline.transfer, strict=True):
        leg = _next_leg(stage.pool, worker, at, transfer[batch_size - 1], stage.latency[batch_size - 1])
        worker = leg.worker
        finish = leg.start + leg.length
        waiting += finish - at - leg.transfer_length - leg.length
        at = finish
        legs.append(leg)
    return Path(tuple(legs), at, initial_wait, waiting)


def _next_leg(pool: WorkerPool, source: Worker, at: int, transfer: int, length: int) -> Leg:
    """From `source`, whose answer is there `at`, to the worker of the next stage that is done first."""
    local = [worker for worker in source.node.workers if pool in worker.pools] if transfer else []
    soonest = at if local or not transfer else source.node.uplink.earliest(at, transfer) + transfer
    best: Leg | None = None
    for worker in chain(local, pool.free_at(soonest), (pool.earliest_at_end(soonest)[0],), pool):
        if best is not None and worker.starts_after(soonest, length, best.start):
            continue
        leg = _leg(source, worker, at, transfer, length)
        if best is None or leg.start < best.start:
            best = leg
        if best.start == soonest:
            break
    assert best is not None
    return best


def _leg(source: Worker, worker: Worker, at: int, transfer: int, length: int) -> Leg:
    if transfer == 0 or worker.node is source.node:
        return Leg(worker, worker.earliest(at, length), length, at, 0)
    sent = earliest_joint(source.node.uplink, worker.node.downlink, at, transfer)
    return Leg(worker, worker.earliest(sent + transfer, length), length, sent, transfer)
