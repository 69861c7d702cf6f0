"""Samples of a quality check: executed on the epoch of one plan, also before it serves."""

import asyncio
from dataclasses import dataclass

from partita_runtime.execution.executor import Array
from partita_runtime.serving.protocol.inference import InferRequest
from partita_runtime.serving.session.epoch_executor import EpochExecutor
from partita_runtime.serving.transport.clock import now_micros


@dataclass(frozen=True)
class _SampleHandler:
    """The `ResponseHandler` of a sample."""

    ended: asyncio.Future[dict[str, Array]]

    def answered(self, tensors: dict[str, Array]) -> None:
        """Called by the executor."""
        if not self.ended.done():
            self.ended.set_result(tensors)

    def failed(self, error: Exception) -> None:
        """Called by the executor."""
        if not self.ended.done():
            self.ended.set_exception(error)


async def sample_answer(executor: EpochExecutor, requested: InferRequest) -> dict[str, Array]:
    """The tensors that answer a sample. Its SLO begins now. Raises UnservedError."""
    handler = _SampleHandler(asyncio.get_running_loop().create_future())
    execution = executor.begin(requested, now_micros(), handler)
    try:
        return await handler.ended
    except asyncio.CancelledError:
        executor.cancel(execution)
        raise
