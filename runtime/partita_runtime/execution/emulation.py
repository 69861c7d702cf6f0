"""An emulated accelerator: takes the profiled time and returns zeros."""

import time
from collections.abc import Sequence

from partita_runtime.execution.executor import Array, check_batch, zeros
from partita_runtime.execution.stage_build import EmulatedStage
from partita_runtime.execution.waiting import wait_until


class EmulatedExecutor:
    """Sleeps for the profiled time of the stage. Needs no torch."""

    def __init__(self, stage: EmulatedStage) -> None:
        self._stage = stage

    @property
    def memory_bytes(self) -> int:
        """0: there are no weights."""
        return 0

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Zeros, `latency_micros[batch - 1]` from now."""
        started = time.perf_counter_ns()
        batch = check_batch(inputs, self._stage.inputs, len(self._stage.latency_micros))
        outputs = zeros(self._stage.outputs, batch)
        wait_until(started + 1000 * self._stage.latency_micros[batch - 1])
        return outputs

    def warm_up(self, batch_sizes: Sequence[int]) -> None:
        """Does nothing."""
