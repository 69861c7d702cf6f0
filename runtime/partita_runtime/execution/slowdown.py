"""A slower class of accelerator: computes for real, then waits until a multiple of the CPU time has passed."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from partita_runtime.execution.executor import Array, StageExecutor
from partita_runtime.execution.waiting import wait_until

T = TypeVar("T")


def stretched(call: Callable[[], T], factor: float) -> T:
    """What `call` answers, once `factor` times the CPU time that it took has passed.

    CPU time rather than elapsed time, so that a class does not slow down further where cores are shared.
    """
    started, worked = time.perf_counter_ns(), time.thread_time_ns()
    answer = call()
    wait_until(started + round(factor * (time.thread_time_ns() - worked)))
    return answer


class SlowdownExecutor:
    """Another executor, `factor` times slower."""

    def __init__(self, executor: StageExecutor, factor: float) -> None:
        self._executor = executor
        self._factor = factor

    @property
    def memory_bytes(self) -> int:
        """As the other's."""
        return self._executor.memory_bytes

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """As the other's, later."""
        return stretched(lambda: self._executor.run(inputs), self._factor)

    def warm_up(self, batch_sizes: Sequence[int]) -> None:
        """As the other's, no slower."""
        self._executor.warm_up(batch_sizes)
