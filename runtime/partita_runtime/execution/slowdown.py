"""An emulated slower accelerator: computes the real answer, then waits for a multiple of the CPU time."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from partita_runtime.execution.executor import Array, StageExecutor
from partita_runtime.execution.waiting import wait_until

T = TypeVar("T")


def slowed_down(call: Callable[[], T], factor: float) -> T:
    """The result of `call`, after `factor` times its CPU time.

    CPU time instead of elapsed time: shared cores do not slow the emulated class down further.
    """
    started, worked = time.perf_counter_ns(), time.thread_time_ns()
    answer = call()
    wait_until(started + round(factor * (time.thread_time_ns() - worked)))
    return answer


class SlowdownExecutor:
    """Runs another executor `factor` times slower."""

    def __init__(self, executor: StageExecutor, factor: float) -> None:
        self._executor = executor
        self._factor = factor

    @property
    def memory_bytes(self) -> int:
        """Bytes of weights of the other executor."""
        return self._executor.memory_bytes

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs of the other executor, after the slowdown."""
        return slowed_down(lambda: self._executor.run(inputs), self._factor)

    def warm_up(self, batch_sizes: Sequence[int]) -> None:
        """Warm the other executor up, without slowdown."""
        self._executor.warm_up(batch_sizes)
