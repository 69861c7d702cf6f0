"""Dispatch models: the worst-case latency of the first request of a batch."""

from enum import Enum, auto

from partita_planner.configurations.workload import Configuration


class DispatchModel(Enum):
    """How requests are assigned to machines; this decides how fast a batch is collected (Harpagon, Table III)."""

    BATCH_AWARE = auto()
    """Whole batches, in the order of throughput-cost ratio: d + b/w (Harpagon, Theorem 1)."""
    PER_GPU = auto()
    """Each GPU collects batches for the machines on it at its own throughput t: d + b/t (Scrooge).

    With one machine on a GPU this is 2d.
    """
    ROUND_ROBIN = auto()
    """Single requests in turn: each machine collects at its own throughput, 2d (Nexus, InferLine, Clipper)."""

    def latency(self, configuration: Configuration, remaining: float) -> float:
        """Worst case in seconds on a machine when `remaining` requests per second are left for it and those after it.

        `remaining` is Theorem 1's w, the rate sent to machines of equal or lower throughput-cost ratio. No model
        collects faster than w. So 2d and d + b/t hold only for machines at full load: under every model a machine waits
        at least b/w. (This is why S1 in Harpagon's Table II has its last 6 req/s in batches of 2.)
        """
        collection = configuration.batch / remaining
        if self is DispatchModel.PER_GPU:
            collection = max(collection, configuration.duration / configuration.concurrency)
        elif self is DispatchModel.ROUND_ROBIN:
            collection = max(collection, configuration.duration)
        return configuration.duration + collection
