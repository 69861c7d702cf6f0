"""One vGPU in its process: it runs one batch at a time, of any of its models, in the order of their reservations."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from partita_runtime.serving.replica.reserved_order import BatchKey, ReservedOrder, ReservedTimes
from partita_runtime.serving.transport.clock import now_micros

logger = logging.getLogger(__name__)

HUNG_SECONDS: Final = 60.0
"""If a batch runs for longer than this, the device counts as hung."""

T = TypeVar("T")
Turn = Callable[[ReservedTimes | None], Awaitable[None]]
"""Runs a batch, for which this is reserved if anything is."""


class Vgpu:
    """Runs turns one after the other; use it on the event loop that it was started on."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="partita-stage")
        self._order = ReservedOrder[Turn]()
        self._changed = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._running_since: float | None = None

    def start(self) -> None:
        """Begin to run turns; does nothing the second time."""
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Run no more turns."""
        if self._runner is not None:
            self._runner.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def check_health(self) -> None:
        """Raises RuntimeError if no more turns will run."""
        if self._runner is None or self._runner.done():
            raise RuntimeError("the stage's executor has ended")
        if self._running_since is not None and time.monotonic() - self._running_since > HUNG_SECONDS:
            raise RuntimeError(f"a batch has been running for more than {HUNG_SECONDS:.0f} s")

    def expect(self, batch: BatchKey, reservation: ReservedTimes) -> None:
        """A batch will come, for which this is reserved."""
        self._order.expect(batch, reservation)

    def put(self, batch: BatchKey, turn: Turn) -> None:
        """A batch is there, and `turn` runs it."""
        self._order.arrive(batch, turn, now_micros())
        self._changed.set()

    def withdraw(self, batch: BatchKey) -> None:
        """A batch will not come, or must not run."""
        self._order.withdraw(batch)
        self._changed.set()

    def forget(self, frontend: str, stage: Hashable) -> None:
        """A frontend has left a stage, with its batches."""
        self._order.forget(frontend, stage)
        self._changed.set()

    async def compute(self, work: Callable[[], T]) -> T:
        """The result of `work`, which runs on the vGPU's thread. Call this only within a turn."""
        self._running_since = time.monotonic()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._running_since = None

    async def _run(self) -> None:
        while True:
            await self._until_due()
            turn, reservation = self._order.take()
            try:
                await turn(reservation)
            except Exception:
                logger.exception("a turn failed")
            del turn  # else it would keep its batch until the next one

    async def _until_due(self) -> None:
        """Return once a batch may run."""
        while True:
            due = self._order.due()
            seconds = None if due is None else (due - now_micros()) / 1e6
            if seconds is not None and seconds <= 0:
                return
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
