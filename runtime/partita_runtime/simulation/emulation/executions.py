"""What emulated workers did: the batches that they executed, and their idle time."""

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
