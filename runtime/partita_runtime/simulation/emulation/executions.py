"""What emulated workers did: the batches that they executed, and their idle time."""

from collections.abc import Sequence
from typing import NamedTuple


class BatchExecution(NamedTuple):
    """One batch on one worker, for timelines (PPipe, Figure 12)."""

    worker: str
    module: str
    pipeline: str
    stage: int
    batch_id: int
    batch_size: int
    start_micros: int
    end_micros: int


class WorkerIdle(NamedTuple):
    """The idle share of one worker."""

    pool: str
    """Its GPUPool."""
    fraction: float
    """Share of its time without a batch."""


def consecutive(executions: Sequence[BatchExecution], count: int) -> Sequence[BatchExecution]:
    """At most `count` executions that start one after the other, from the middle of a run."""
    ordered = sorted(executions, key=lambda execution: execution.start_micros)
    return ordered[len(ordered) // 2 :][:count]


def worker_order(worker: str) -> tuple[str, int]:
    """A key that sorts the names of workers by stage, then by number: 2 comes before 10."""
    stage, _, number = worker.rpartition("/")
    return (stage, int(number)) if number.isdigit() else (worker, 0)
