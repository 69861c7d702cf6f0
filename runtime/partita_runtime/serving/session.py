"""One session in its frontend: which epoch serves, which one is coming up, which are being finished."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from partita_api.meta import SpecModel
from partita_runtime.serving.directory import Announcement
from partita_runtime.serving.dispatcher import now_micros
from partita_runtime.serving.driver import Driver
from partita_runtime.serving.epoch import Epoch
from partita_runtime.serving.functions import FunctionError, FunctionPool
from partita_runtime.serving.signals import Meter, SessionSignals, Situation, Snapshot, session_signals

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.25
_SNAPSHOT_MICROS: Final = 1_000_000


class FrontendSettings(SpecModel):
    """How a frontend runs; the same for as long as it is up."""

    function_processes: int = 2
    """Processes for CPU functions, if the session has any."""
    max_request_bytes: int = 64 * 1024 * 1024
    """Largest request body that is read."""
    trace_directory: str | None = None
    """Where to record what the scheduling core is told and decides, to be replayed later; it grows without bound."""
    switch_patience_seconds: float = 10.0
    """How long a plan that could serve is left waiting for the rest of its replicas, while another one serves."""


class ReplicaDirectory(Protocol):
    """Where replicas are found (`directory.Directory`)."""

    async def replicas(self, session_key: str) -> Sequence[Announcement]:
        """The replicas of a session. Raises LookupError while they cannot be looked up."""


class Session:
    """Moves from epoch to epoch; at most one driver takes requests, those before it finish what they have."""

    def __init__(self, session_key: str, settings: FrontendSettings, directory: ReplicaDirectory) -> None:
        self.key = session_key
        self.settings = settings
        self.meter = Meter()
        self._directory = directory
        self._functions = FunctionPool(settings.function_processes)
        self._serving: Driver | None = None
        self._coming: _Coming | None = None
        self._finishing: list[Driver] = []
        self._snapshots: deque[Snapshot] = deque()
        self._problem = ""
        self._ticking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look for replicas, on this event loop; does nothing the second time."""
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick_forever())

    def close(self) -> None:
        """Leave all replicas and end all processes."""
        if self._ticking is not None:
            self._ticking.cancel()
        for driver in self._drivers():
            driver.dispatcher.close()
        self._functions.close()

    @property
    def serving(self) -> Driver | None:
        """The driver that takes requests; None before the first plan's replicas are there."""
        return self._serving

    @property
    def ready(self) -> bool:
        """Whether every stage of the serving plan has a replica."""
        return self._serving is not None and all(self._serving.dispatcher.ready_replicas().values())

    def reconfigure(self, epoch: Epoch) -> None:
        """Move to `epoch` as soon as its replicas and functions are ready; go on as before until then."""
        if self._coming is not None:
            if self._coming.driver.epoch == epoch:
                return
            self._coming.driver.dispatcher.close()
            self._coming = None
        if self._serving is None or self._serving.epoch != epoch:
            logger.info("session %s: plan %s is coming up", self.key, epoch.plan.name)
            traces = self.settings.trace_directory
            driver = Driver(epoch, self._functions, self.meter, None if traces is None else Path(traces))
            self._coming = _Coming(driver)

    def signals(self) -> SessionSignals:
        """What was measured over the window that the session's autoscaling asks for."""
        current = self._serving or (self._coming.driver if self._coming else None)
        window = current.epoch.session.autoscaling.window_seconds * 1_000_000 if current else 0
        now = self._snapshot()
        oldest = self._snapshots[0] if self._snapshots else now
        before = next((s for s in reversed(self._snapshots) if s.at <= now.at - window), oldest)
        plan = self._serving.epoch.plan if self._serving else None
        return session_signals(self._situation(), plan, before, now, self.meter.latencies)

    def _situation(self) -> Situation:
        serving = self._finishing[0] if self._finishing else self._serving
        message = self._problem
        if self._coming is not None and not message:
            missing = [ref for ref, ready in self._coming.driver.dispatcher.ready_replicas().items() if not ready]
            waiting = ", ".join(f"{ref.module}/{ref.pipeline}/{ref.stage}" for ref in missing)
            message = f"no replica yet of {waiting}" if missing else "waiting for the rest of the replicas"
        return Situation(
            session=self.key,
            plan=serving.epoch.plan.name if serving else None,
            next_plan=self._coming.driver.epoch.plan.name if self._coming else None,
            message=message,
        )

    def _drivers(self) -> list[Driver]:
        coming = [self._coming.driver] if self._coming else []
        serving = [self._serving] if self._serving else []
        return [*self._finishing, *serving, *coming]

    async def _tick_forever(self) -> None:
        while True:
            try:
                await self._tick()
            except Exception:
                logger.exception("session %s", self.key)
            await asyncio.sleep(TICK_SECONDS)

    async def _tick(self) -> None:
        try:
            replicas = await self._directory.replicas(self.key)
        except LookupError as error:
            logger.warning("session %s: %s", self.key, error)
            replicas = []
        for driver in self._drivers():
            driver.dispatcher.connect(replicas)
            driver.dispatcher.tick()
        await self._move_on()
        self._finish()
        now = now_micros()
        if not self._snapshots or now - self._snapshots[-1].at >= _SNAPSHOT_MICROS:
            self._keep(self._snapshot())

    async def _move_on(self) -> None:
        coming = self._coming
        if coming is None or not await self._functions_ready(coming):
            return
        patience = 0.0 if not self.ready else self.settings.switch_patience_seconds
        if self._coming is not coming or not coming.may_serve(patience):
            return
        if self._serving is not None:
            self._finishing.append(self._serving)
        self._serving, self._coming = coming.driver, None
        logger.info("session %s: plan %s serves", self.key, coming.driver.epoch.plan.name)

    async def _functions_ready(self, coming: "_Coming") -> bool:
        if not coming.functions_loaded:
            functions = [m.function for m in coming.driver.epoch.session.modules if m.function is not None]
            try:
                await self._functions.prepare(functions)
            except FunctionError as error:
                self._problem = str(error)
                return False
            coming.functions_loaded = True
        self._problem = ""
        return True

    def _finish(self) -> None:
        for driver in [d for d in self._finishing if d.idle]:
            self._finishing.remove(driver)
            driver.dispatcher.close()

    def _snapshot(self) -> Snapshot:
        core = self._serving.dispatcher.signals() if self._serving else None
        return Snapshot(now_micros(), self.meter.arrived, dict(self.meter.outcomes), core)

    def _keep(self, snapshot: Snapshot) -> None:
        self._snapshots.append(snapshot)
        window = self._serving.epoch.session.autoscaling.window_seconds * 1_000_000 if self._serving else 0
        while len(self._snapshots) > 1 and self._snapshots[1].at <= snapshot.at - window:
            self._snapshots.popleft()


class _Coming:
    """A driver on its way to serve."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.functions_loaded = False
        self._complete_since: int | None = None

    def may_serve(self, patience_seconds: float) -> bool:
        """Whether all replicas are there, or one of every stage, and there have been for as long as we wait."""
        ready = self.driver.dispatcher.ready_replicas()
        if not all(ready.values()):
            self._complete_since = None
            return False
        now = now_micros()
        if self._complete_since is None:
            self._complete_since = now
        planned = {
            (module.name, pipeline.name, number): stage.replicas
            for module in self.driver.epoch.plan.modules
            for pipeline in module.pipelines
            for number, stage in enumerate(pipeline.stages)
        }
        everything = all(count >= planned[ref] for ref, count in ready.items())
        return everything or now - self._complete_since >= patience_seconds * 1e6
