"""An emulated class of accelerator that computes real answers: they arrive when the profile says."""

import time
from collections.abc import Sequence

from partita_runtime.execution.executor import Array, StageExecutor
from partita_runtime.execution.waiting import wait_until


class ProfiledTimeExecutor:
    """Runs another executor, and returns its outputs at the profiled time of the batch.

    The time does not depend on what else runs on the CPU, as long as the computation is faster than the profile.
    """

    def __init__(self, executor: StageExecutor, latency_micros: Sequence[int]) -> None:
        """`latency_micros` has the time of a batch of b samples at index b - 1."""
        self._executor = executor
        self._latency_micros = latency_micros

    @property
    def memory_bytes(self) -> int:
        """Bytes of weights of the other executor."""
        return self._executor.memory_bytes

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs of the other executor, `latency_micros[batch - 1]` from now, or later if it is slower."""
        started = time.perf_counter_ns()
        outputs = self._executor.run(inputs)
        wait_until(started + 1000 * self._latency_micros[len(inputs[0]) - 1])
        return outputs

    def warm_up(self, batch_sizes: Sequence[int]) -> None:
        """Warm the other executor up, at its own speed."""
        self._executor.warm_up(batch_sizes)
