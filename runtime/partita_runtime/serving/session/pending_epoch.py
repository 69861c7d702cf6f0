"""A plan on its way to serve: what it waits for, and whether the frontend may move to it."""

import asyncio
from typing import Final

from partita_runtime.serving.central.coordinator_link import AWAY
from partita_runtime.serving.dispatch.scheduler import now_micros
from partita_runtime.serving.session.epoch_executor import Driver
from partita_runtime.serving.session.functions import FunctionError

_LOAD_AGAIN_SECONDS: Final = 5.0


class Coming:
    """A driver on its way to serve."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._problem = ""
        self._loading = asyncio.create_task(self._load_functions())
        self._complete_since: int | None = None

    @property
    def message(self) -> str:
        """What is being waited for."""
        missing = [ref for ref, ready in self.driver.dispatcher.ready_replicas().items() if not ready]
        if self._problem or not missing:
            unscheduled = "" if self.driver.dispatcher.scheduled else AWAY
            return self._problem or unscheduled or "waiting for functions, or for the rest of the replicas"
        return "no replica yet of " + ", ".join(f"{ref.module}/{ref.pipeline}/{ref.stage}" for ref in missing)

    def may_serve(self, patience_seconds: float | None) -> bool:
        """Whether all is there, or one replica of every stage has been for as long as our patience lasts.

        A patience of None does without replicas.
        """
        ready = self.driver.dispatcher.ready_replicas()
        prepared = self._loading.done() and self.driver.dispatcher.scheduled
        if patience_seconds is None and prepared:
            return True
        if not all(ready.values()) or not prepared:
            self._complete_since = None
            return False
        now = now_micros()
        if self._complete_since is None:
            self._complete_since = now
        everything = all(ready[ref] >= stage.replicas for ref, stage in self.driver.epoch.plan.stages())
        return everything or now - self._complete_since >= (patience_seconds or 0.0) * 1e6

    def close(self) -> None:
        """It will not serve."""
        self._loading.cancel()
        self.driver.close()

    async def _load_functions(self) -> None:
        while True:
            try:
                await self.driver.prepare()
            except FunctionError as error:
                self._problem = str(error)
                await asyncio.sleep(_LOAD_AGAIN_SECONDS)
            else:
                self._problem = ""
                return
