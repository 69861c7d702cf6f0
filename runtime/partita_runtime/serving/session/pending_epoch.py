"""An epoch that is to be served next: what it waits for, and whether the frontend may move to it."""

import asyncio
from typing import Final

from partita_runtime.serving.central.coordinator_link import COORDINATOR_AWAY
from partita_runtime.serving.session.endpoints import EndpointError
from partita_runtime.serving.session.epoch_executor import EpochExecutor
from partita_runtime.serving.session.function_processes import FunctionError
from partita_runtime.serving.transport.clock import now_micros

_LOAD_AGAIN_SECONDS: Final = 5.0


class PendingEpoch:
    """An executor that does not take requests yet."""

    def __init__(self, executor: EpochExecutor) -> None:
        self.executor = executor
        self._problem = ""
        self._loading = asyncio.create_task(self._load_functions())
        self._complete_since: int | None = None

    @property
    def prepared(self) -> bool:
        """Whether it can execute requests: every stage has a replica, and functions and scheduler are there."""
        dispatcher = self.executor.dispatcher
        return self._loading.done() and dispatcher.scheduled and all(dispatcher.ready_replicas().values())

    @property
    def message(self) -> str:
        """What it waits for, in one or two sentences."""
        dispatcher = self.executor.dispatcher
        missing = [ref for ref, ready in dispatcher.ready_replicas().items() if not ready]
        if self._problem:
            return f"The session cannot call what it needs: {self._problem}. The frontend tries again."
        if missing:
            stages = ", ".join(f"{ref.module}/{ref.pipeline}/{ref.stage}" for ref in missing)
            return f"These stages have no replica yet: {stages}."
        if not dispatcher.scheduled:
            return COORDINATOR_AWAY
        if not self._loading.done():
            return "The frontend loads the session's functions."
        return "The frontend waits for the rest of the replicas."

    def may_serve(self, patience_seconds: float | None) -> bool:
        """Whether all replicas are there, or one of every stage has been there for `patience_seconds`.

        With a patience of None it needs no replicas. Functions and scheduler must be there in any case.
        """
        ready = self.executor.dispatcher.ready_replicas()
        prepared = self._loading.done() and self.executor.dispatcher.scheduled
        if patience_seconds is None and prepared:
            return True
        if not all(ready.values()) or not prepared:
            self._complete_since = None
            return False
        now = now_micros()
        if self._complete_since is None:
            self._complete_since = now
        everything = all(ready[ref] >= stage.replicas for ref, stage in self.executor.epoch.plan.stages())
        return everything or now - self._complete_since >= (patience_seconds or 0.0) * 1e6

    def close(self) -> None:
        """It will not serve."""
        self._loading.cancel()
        self.executor.close()

    async def _load_functions(self) -> None:
        while True:
            try:
                await self.executor.prepare()
            except (FunctionError, EndpointError) as error:
                self._problem = str(error).rstrip(".")
                await asyncio.sleep(_LOAD_AGAIN_SECONDS)
            else:
                self._problem = ""
                return
