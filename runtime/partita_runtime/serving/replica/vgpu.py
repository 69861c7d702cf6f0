"""One vGPU in its process: it runs one batch at a time, of any of its models, in order of arrival."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

logger = logging.getLogger(__name__)

HUNG_SECONDS: Final = 60.0
"""If a batch runs for longer than this, the device counts as hung."""

T = TypeVar("T")


class Vgpu:
    """Runs turns one after the other; use it on the event loop that it was started on."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="partita-stage")
        self._turns: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
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

    def put(self, turn: Callable[[], Awaitable[None]]) -> None:
        """Run `turn` after all earlier ones."""
        self._turns.put_nowait(turn)

    async def compute(self, work: Callable[[], T]) -> T:
        """The result of `work`, which runs on the vGPU's thread. Call this only within a turn."""
        self._running_since = time.monotonic()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._running_since = None

    async def _run(self) -> None:
        while True:
            turn = await self._turns.get()
            try:
                await turn()
            except Exception:
                logger.exception("a turn failed")
            del turn  # else it would keep its batch until the next one
