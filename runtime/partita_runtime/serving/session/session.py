"""One session in its frontend: which epoch serves, which one is coming up, which are being finished."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self

from pydantic import model_validator

from partita_api.meta import SpecModel
from partita_runtime.logs import concerning
from partita_runtime.serving.central.coordinator_link import AWAY, RankFinder
from partita_runtime.serving.central.messages import Part
from partita_runtime.serving.central.metrics_reporter import Partaking
from partita_runtime.serving.central.remote_scheduler import RankedScheduler
from partita_runtime.serving.deploy.directory import Announcement
from partita_runtime.serving.deploy.epochs import Epoch
from partita_runtime.serving.dispatch.dispatcher import Dispatcher
from partita_runtime.serving.dispatch.scheduler import CoreInProcess, MakeScheduler, now_micros
from partita_runtime.serving.protocol.inference import InferRequest
from partita_runtime.serving.session.body_memory import BodyMemory
from partita_runtime.serving.session.epoch_executor import Driver
from partita_runtime.serving.session.pending_epoch import Coming
from partita_runtime.serving.session.waiting_room import MOST_HELD, Place, Waiter, WaitingRoom
from partita_runtime.serving.telemetry.signals import Meter, SessionSignals, Situation, Snapshot
from partita_runtime.serving.telemetry.window import Window
from partita_runtime.serving.transport.transport import TCP, Carrier

if TYPE_CHECKING:
    from partita_runtime.serving.telemetry.tracing import RequestTracer

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.25
FIRST_SECONDS: Final = 0.02
"""Between looks whether the first plan can serve: until it does, nobody is served at all."""
_MOST_WARNINGS: Final = 8


class FrontendSettings(SpecModel):
    """How a frontend runs; the same for as long as it is up."""

    function_processes: int = 2
    """Processes for CPU functions, if the session has any."""
    max_request_bytes: int = 64 * 1024 * 1024
    """Largest request body that is read."""
    max_reading_bytes: int = 256 * 1024 * 1024
    """Most bytes of all request bodies together that have come in part; the request that would exceed it is refused."""
    body_seconds: float = 60.0
    """How long the client may take to send a request's body."""
    max_held_requests: int = MOST_HELD
    """Most requests that are held while a session that has scaled to zero has no replicas; `max_reading_bytes` bounds
    their bodies, together with those that have come in part."""
    max_connections: int = 10_000
    """Most connections to the frontend's own HTTP port, and at most three quarters of the files that may be open."""
    trace_directory: str | None = None
    """Where to record what the scheduling core is told and decides, to be replayed later; it grows without bound.

    What the rank of several frontends decides is not recorded.
    """
    switch_patience_seconds: float = 10.0
    """How long a plan that could serve is left waiting for the rest of its replicas, while another one serves."""

    @model_validator(mode="after")
    def _any_body_can_be_read(self) -> Self:
        if self.max_reading_bytes < self.max_request_bytes:
            raise ValueError(
                f"maxReadingBytes ({self.max_reading_bytes}) must be at least maxRequestBytes "
                f"({self.max_request_bytes}), or the largest request could never be read"
            )
        return self


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
        rank: RankFinder | None = None,
        carrier: Carrier = TCP,
    ) -> None:
        """`rank` is where several frontends have their batches decided, once the session has several.

        `carrier` leads to replicas.
        """
        self._carrier = carrier
        self.key = session_key
        self.tracer = tracer
        """What samples requests, and traces them; nothing is traced without."""
        self.settings = settings
        self.bodies = BodyMemory(settings.max_reading_bytes)
        """What the bodies take that are being read, by all HTTP servers of the session."""
        self.meter = Meter()
        self.waiting = WaitingRoom(settings.max_held_requests, self.bodies, self.meter)
        """Requests that came while there were no replicas."""
        self.grpc_address: str | None = None
        """Where the session is answered for by gRPC, if it is."""
        self.http_address: str | None = None
        """Where it is answered for by HTTP, besides Serve's proxy, if it is."""
        self._directory = directory
        self._rank = rank
        self._part: Partaking | None = None
        """In the measuring of a session with several frontends."""
        self._used_plan: str | None = None
        self._used_since = 0
        self._serving: Driver | None = None
        self._coming: Coming | None = None
        self._finishing: list[Driver] = []
        self._window = Window(self.meter)
        self._replicas: Sequence[Announcement] = ()
        self._last_request = now_micros()
        """When a request was there last; the beginning if none ever was."""
        self._arrived = 0
        """Requests that had arrived at the last tick."""
        self._replicas_wanted = asyncio.Event()
        """Whether somebody waits, so that replicas should be noticed at once."""
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to look for replicas, on this event loop; does nothing the second time."""
        if not self._running:
            self._beginning = asyncio.create_task(self._begin_soon())
            others = (self._look_forever(), self._tick_forever(), self._let_in_soon())
            self._running = [self._beginning, *(asyncio.create_task(loop) for loop in others)]

    def close(self) -> None:
        """Leave all replicas and end all processes."""
        for task in self._running:
            task.cancel()
        if self._coming is not None:
            self._coming.close()
        for driver in (*self._finishing, *self._serving_driver()):
            driver.close()
        if self._part is not None:
            self._part.close()

    @property
    def serving(self) -> Driver | None:
        """The driver that takes requests; None before the first plan's replicas are there."""
        return self._serving

    @property
    def ready(self) -> bool:
        """Whether requests are answered: every stage of the serving plan has a replica, or they are held until then."""
        serving = self._serving.dispatcher if self._serving else None
        return _is_complete(serving) or (self.may_hold and serving is not None and serving.scheduled)

    @property
    def may_hold(self) -> bool:
        """Whether requests wait for replicas where there are none."""
        return self._serving is not None and _hold_micros(self._serving) is not None

    @property
    def holds(self) -> bool:
        """Whether a request that comes now does."""
        return self.may_hold and self._serving is not None and not self._serving.dispatcher.can_serve

    def hold(self, waiter: Waiter, wanted: InferRequest, now: int) -> Place:
        """Hold a request until there are replicas. Raises UnservedError (503) if there is no room for it."""
        hold = (_hold_micros(self._serving) if self._serving else None) or 0
        size = sum(tensor.nbytes for tensor in wanted.inputs.values())
        place = self.waiting.enter(waiter, wanted.samples, size, now, now + hold)
        self._replicas_wanted.set()
        return place

    async def first_plan(self, seconds: float) -> None:
        """Return once a plan serves, or when that much time has passed. The session must have been started."""
        await asyncio.wait({self._beginning}, timeout=seconds)

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
            processes = self.settings.function_processes
            sampled = None if self.tracer is None else self.tracer.sub_requests(epoch.plan)
            self._coming = Coming(Driver(epoch, self.meter, processes, self._scheduling(epoch), sampled, self._carrier))

    def _scheduling(self, epoch: Epoch) -> MakeScheduler:
        """With one frontend its own core decides, with several the rank that they share."""
        if epoch.session.frontend.replicas > 1 and self._rank is not None:
            return partial(RankedScheduler, self._rank)
        traces = self.settings.trace_directory
        return partial(CoreInProcess, traces=None if traces is None else Path(traces))

    def signals(self) -> SessionSignals:
        """What was measured over the window that the session's autoscaling asks for, at all of its frontends.

        The plan is the one before for as long as requests are being finished on it.
        """
        situation, driver = self._situation(), self._shown
        if self._part is not None and self._part.measured is not None:
            measured = self._part.measured.signals
        else:
            measured = self._window.signals(situation, self._snapshot(driver), _window_micros(driver))
            own = {
                "grpc_address": self.grpc_address,
                "http_address": self.http_address,
                "held": self.waiting.asking(now_micros()),
                "idle_seconds": (now_micros() - self._last_request) / 1e6,
            }
            measured = measured.model_copy(update=own)
        warnings = self._warnings(measured.plan) + measured.warnings
        can_make_place = all(r.can_make_place for r in self._replicas if r.plan == measured.plan and r.vgpu is None)
        return measured.model_copy(update={"warnings": warnings[:_MOST_WARNINGS], "can_make_place": can_make_place})

    @property
    def counted(self) -> Meter:
        """How the requests of all of its frontends ended, since the counting began."""
        if self._part is not None and self._part.measured is not None:
            return self._part.counted
        return self.meter

    @property
    def _shown(self) -> Driver | None:
        return self._finishing[0] if self._finishing else self._serving

    def _situation(self) -> Situation:
        unscheduled = self._serving is not None and not self._serving.dispatcher.scheduled
        return Situation(
            session=self.key,
            plan=self._shown.epoch.plan if self._shown else None,
            next_plan=self._coming.driver.epoch.plan.name if self._coming else None,
            message=self._coming.message if self._coming else AWAY if unscheduled else "",
        )

    def _warnings(self, plan: str | None) -> tuple[str, ...]:
        """Those of the replicas that run a plan, the same of several replicas once."""
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
            if self._coming is not None:
                self._coming.driver.dispatcher.connect(self._replicas)
            await asyncio.sleep(TICK_SECONDS)

    async def _begin_soon(self) -> None:
        """A frontend that was started anew does not wait for ticks."""
        while self._serving is None:
            self._move_on()
            await asyncio.sleep(FIRST_SECONDS)

    async def _let_in_soon(self) -> None:
        """Who waits for replicas does not wait for ticks, too."""
        while True:
            await self._replicas_wanted.wait()
            try:
                self._move_on()
                self._let_in()
            except Exception:
                logger.exception("session %s", self.key)
            if not self.waiting:
                self._replicas_wanted.clear()
            await asyncio.sleep(FIRST_SECONDS)

    def _let_in(self) -> None:
        if self._serving is not None and self._serving.dispatcher.scheduled and self._serving.dispatcher.can_serve:
            self.waiting.open(self._serving.dispatcher.width, now_micros())
        self.waiting.expire(now_micros())

    def _note_requests(self) -> None:
        present = (*self._finishing, *self._serving_driver())
        if self.waiting or self.meter.arrived != self._arrived or not all(driver.idle for driver in present):
            self._arrived, self._last_request = self.meter.arrived, now_micros()

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
        self._acquaint()
        self._note_requests()
        if self._window.is_due(now_micros()):
            self._window.keep(self._snapshot(self._serving), _window_micros(self._serving))
        self._take_part()

    def _move_on(self) -> None:
        coming = self._coming
        if coming is None or not coming.may_serve(self._patience(coming.driver)):
            return
        self._finishing += self._serving_driver()
        self._serving, self._coming = coming.driver, None
        ids = {"session": self.key, "plan": coming.driver.epoch.plan.name}
        logger.info("session %s: plan %s serves", *ids.values(), extra=concerning(**ids))
        self._acquaint()

    def _patience(self, coming: Driver) -> float | None:
        """For how many seconds a plan waits for the rest of its replicas; None if it serves without any.

        Where requests are held in any case, they may as well be held for the plan to come.
        """
        serving = self._serving.dispatcher if self._serving else None
        if _is_complete(serving):
            return self.settings.switch_patience_seconds
        served = serving is not None and serving.can_serve
        return None if _hold_micros(coming) is not None and not served else 0.0

    def _acquaint(self) -> None:
        """What one driver has under way keeps a replica busy for every other one, of the same plan or sub-cluster."""
        drivers = [*self._finishing, *self._serving_driver()]
        for driver in drivers:
            driver.dispatcher.share_with(d.dispatcher for d in drivers if d is not driver)

    def _finish(self) -> None:
        for driver in [d for d in self._finishing if d.idle]:
            self._finishing.remove(driver)
            driver.close()

    def _take_part(self) -> None:
        """Measure the session together with its other frontends, if there are any."""
        plan = self._shown.epoch.plan.name if self._shown else None
        if plan != self._used_plan:
            self._used_plan, self._used_since = plan, now_micros()
        driver = self._shown or (self._coming.driver if self._coming else None)
        shared = driver is not None and driver.epoch.session.frontend.replicas > 1
        if shared and self._part is None and self._rank is not None:
            self._part = Partaking(self._rank, self.key, self.meter)
        elif not shared and self._part is not None:
            self._part.close()
            self._part = None
        if self._part is not None and driver is not None:
            situation = self._situation()
            part = Part(
                seat=driver.dispatcher.id,
                plan=self._used_plan,
                used_micros=now_micros() - self._used_since,
                next_plan=situation.next_plan,
                message=situation.message,
                grpc_address=self.grpc_address,
                http_address=self.http_address,
                window_micros=_window_micros(driver),
                held=self.waiting.asking(now_micros()),
                idle_micros=now_micros() - self._last_request,
            )
            self._part.tick(part)

    def _serving_driver(self) -> list[Driver]:
        return [self._serving] if self._serving else []

    def _snapshot(self, driver: Driver | None) -> Snapshot:
        core = driver.dispatcher.signals() if driver else None
        source = driver.dispatcher.id if driver else ""
        return Snapshot(now_micros(), self.meter.arrived, dict(self.meter.outcomes), core, source)


def _window_micros(driver: Driver | None) -> int:
    return driver.epoch.session.autoscaling.window_seconds * 1_000_000 if driver else 0


def _is_complete(dispatcher: Dispatcher | None) -> bool:
    """Whether every stage of the plan has a replica, and somebody decides what runs there."""
    return dispatcher is not None and dispatcher.scheduled and all(dispatcher.ready_replicas().values())


def _hold_micros(driver: Driver) -> int | None:
    """For how long the session has requests held while it has no replicas; None if it does not."""
    zero = driver.epoch.session.autoscaling.scale_to_zero
    return None if zero is None else zero.hold_seconds * 1_000_000
