"""One session in its frontend: which epoch serves, which one is coming up, which are being finished."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from partita_api.meta import SpecModel
from partita_runtime.logs import concerning
from partita_runtime.serving.directory import Announcement
from partita_runtime.serving.dispatcher import now_micros
from partita_runtime.serving.driver import Driver
from partita_runtime.serving.epoch import Epoch
from partita_runtime.serving.functions import FunctionError
from partita_runtime.serving.signals import Meter, SessionSignals, Situation, Snapshot, session_signals

if TYPE_CHECKING:
    from partita_runtime.serving.tracing import RequestTracer

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.25
_SNAPSHOT_MICROS: Final = 1_000_000
_LOAD_AGAIN_SECONDS: Final = 5.0
_MOST_WARNINGS: Final = 8


class FrontendSettings(SpecModel):
    """How a frontend runs; the same for as long as it is up."""

    function_processes: int = 2
    """Processes for CPU functions, if the session has any."""
    max_request_bytes: int = 64 * 1024 * 1024
    """Largest request body that is read."""
    body_seconds: float = 60.0
    """How long the client may take to send a request's body."""
    max_connections: int = 10_000
    """Most connections to the frontend's own HTTP port, and at most three quarters of the files that may be open."""
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

    def __init__(
        self,
        session_key: str,
        settings: FrontendSettings,
        directory: ReplicaDirectory,
        tracer: "RequestTracer | None" = None,
    ) -> None:
        self.key = session_key
        self.tracer = tracer
        """What samples requests, and traces them; nothing is traced without."""
        self.settings = settings
        self.meter = Meter()
        self.grpc_address: str | None = None
        """Where the session is answered for by gRPC, if it is."""
        self.http_address: str | None = None
        """Where it is answered for by HTTP, besides Serve's proxy, if it is."""
        self._directory = directory
        self._serving: Driver | None = None
        self._coming: _Coming | None = None
        self._finishing: list[Driver] = []
        self._snapshots: deque[Snapshot] = deque()
        self._replicas: Sequence[Announcement] = ()
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to look for replicas, on this event loop; does nothing the second time."""
        if not self._running:
            self._running = [asyncio.create_task(self._look_forever()), asyncio.create_task(self._tick_forever())]

    def close(self) -> None:
        """Leave all replicas and end all processes."""
        for task in self._running:
            task.cancel()
        if self._coming is not None:
            self._coming.close()
        for driver in (*self._finishing, *self._serving_driver()):
            driver.close()

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
            self._coming.close()
            self._coming = None
        if self._serving is None or self._serving.epoch != epoch:
            ids = {"session": self.key, "plan": epoch.plan.name}
            logger.info("session %s: plan %s is coming up", *ids.values(), extra=concerning(**ids))
            traces = self.settings.trace_directory
            processes = self.settings.function_processes
            sampled = None if self.tracer is None else self.tracer.sub_requests(epoch.plan)
            directory = None if traces is None else Path(traces)
            self._coming = _Coming(Driver(epoch, self.meter, processes, directory, sampled))

    def signals(self) -> SessionSignals:
        """What was measured over the window that the session's autoscaling asks for.

        They are those of the plan before for as long as requests are being finished on it.
        """
        driver = self._finishing[0] if self._finishing else self._serving
        now = self._snapshot(driver)
        oldest = self._snapshots[0] if self._snapshots else now
        before = next((s for s in reversed(self._snapshots) if s.at <= now.at - _window(driver)), oldest)
        situation = Situation(
            session=self.key,
            plan=driver.epoch.plan if driver else None,
            next_plan=self._coming.driver.epoch.plan.name if self._coming else None,
            message=self._coming.message if self._coming else "",
        )
        measured = session_signals(situation, before, now, self.meter.latencies)
        found = {
            "grpc_address": self.grpc_address,
            "http_address": self.http_address,
            "warnings": (self._warnings(driver) + measured.warnings)[:_MOST_WARNINGS],
        }
        return measured.model_copy(update=found)

    def _warnings(self, driver: Driver | None) -> tuple[str, ...]:
        """Those of the replicas that run the driver's plan, the same of several replicas once."""
        plan = driver.epoch.plan.name if driver else None
        said = (
            f"{r.module}/{r.pipeline}/{r.stage}: {warning}."
            for r in self._replicas
            if r.plan == plan
            for warning in r.warnings
        )
        return tuple(dict.fromkeys(said))

    async def _look_forever(self) -> None:
        """Beside the ticks, which must go on while nothing answers here."""
        while True:
            try:
                self._replicas = await self._directory.replicas(self.key)
            except LookupError as error:
                logger.warning("session %s: %s", self.key, error)
                self._replicas = ()
            except Exception:
                logger.exception("session %s", self.key)
            await asyncio.sleep(TICK_SECONDS)

    async def _tick_forever(self) -> None:
        while True:
            try:
                self._tick()
            except Exception:
                logger.exception("session %s", self.key)
            await asyncio.sleep(TICK_SECONDS)

    def _tick(self) -> None:
        coming = [self._coming.driver] if self._coming else []
        for driver in (*self._finishing, *self._serving_driver(), *coming):
            driver.dispatcher.connect(self._replicas)
            driver.tick()
        self._move_on()
        self._finish()
        if not self._snapshots or now_micros() - self._snapshots[-1].at >= _SNAPSHOT_MICROS:
            self._keep_snapshot()

    def _move_on(self) -> None:
        coming = self._coming
        if coming is None or not coming.may_serve(self.settings.switch_patience_seconds if self.ready else 0.0):
            return
        self._finishing += self._serving_driver()
        self._serving, self._coming = coming.driver, None
        ids = {"session": self.key, "plan": coming.driver.epoch.plan.name}
        logger.info("session %s: plan %s serves", *ids.values(), extra=concerning(**ids))

    def _finish(self) -> None:
        for driver in [d for d in self._finishing if d.idle]:
            self._finishing.remove(driver)
            driver.close()

    def _serving_driver(self) -> list[Driver]:
        return [self._serving] if self._serving else []

    def _snapshot(self, driver: Driver | None) -> Snapshot:
        core = driver.dispatcher.signals() if driver else None
        source = driver.dispatcher.id if driver else ""
        return Snapshot(now_micros(), self.meter.arrived, dict(self.meter.outcomes), core, source)

    def _keep_snapshot(self) -> None:
        snapshot = self._snapshot(self._serving)
        self._snapshots.append(snapshot)
        while len(self._snapshots) > 1 and self._snapshots[1].at <= snapshot.at - _window(self._serving):
            self._snapshots.popleft()
        self.meter.forget(self._snapshots[0].at)


def _window(driver: Driver | None) -> int:
    return driver.epoch.session.autoscaling.window_seconds * 1_000_000 if driver else 0


class _Coming:
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
            return self._problem or "waiting for functions, or for the rest of the replicas"
        return "no replica yet of " + ", ".join(f"{ref.module}/{ref.pipeline}/{ref.stage}" for ref in missing)

    def may_serve(self, patience_seconds: float) -> bool:
        """Whether all is there, or one replica of every stage has been for as long as our patience lasts."""
        ready = self.driver.dispatcher.ready_replicas()
        if not all(ready.values()) or not self._loading.done():
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
