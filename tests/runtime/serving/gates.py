"""Executors that hold their batches until a test releases them."""

import dataclasses
import threading
from collections.abc import Callable, Sequence

from partita_runtime.execution.executor import Array, BuiltExecutor, StageExecutor


class Gate(StageExecutor):
    """Holds every batch until it is opened, and may then fail."""

    def __init__(self, built: BuiltExecutor, error: str | None = None) -> None:
        self.built = built
        self.error = error
        self.open = threading.Event()
        self.runs = 0

    memory_bytes = 0

    def warm_up(self, batch_sizes: Sequence[int]) -> None: ...

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        self.runs += 1
        self.open.wait(30)
        if self.error is not None:
            raise RuntimeError(self.error)
        return self.built.executor.run(inputs)


def gated(gates: list[Gate], error: str | None = None) -> Callable[[BuiltExecutor], BuiltExecutor]:
    """Wraps executors in gates, which it adds to `gates`."""

    def wrap(built: BuiltExecutor) -> BuiltExecutor:
        gates.append(Gate(built, error))
        return dataclasses.replace(built, executor=gates[-1])

    return wrap
