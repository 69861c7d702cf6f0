"""One session in its frontend: it finds replicas, serves the current epoch, and holds requests without replicas."""

import asyncio
import logging
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import httpx

from partita_runtime.serving.authentication.authenticator import Authenticator
from partita_runtime.serving.central.coordinator_link import CoordinatorFinder
from partita_runtime.serving.central.remote_scheduler import RemoteScheduler
from partita_runtime.serving.deploy.directory import Announcement
from partita_runtime.serving.deploy.epochs import CheckState, Epoch
from partita_runtime.serving.deploy.version_routes import VersionRoute
from partita_runtime.serving.dispatch.scheduler import CoreInProcess, MakeScheduler
from partita_runtime.serving.protocol.inference import InferRequest
from partita_runtime.serving.session.body_memory import BodyMemory
from partita_runtime.serving.session.epoch_executor import EpochExecutor
from partita_runtime.serving.session.epoch_switch import EpochSwitch, is_complete
from partita_runtime.serving.session.image_decoder import ImageDecoder
from partita_runtime.serving.session.measurement import FrontendAddresses, SessionMeasurement
from partita_runtime.serving.session.settings import FrontendSettings
from partita_runtime.serving.session.waiting_room import Place, Waiter, WaitingRoom
from partita_runtime.serving.telemetry.request_log import RequestLogger
from partita_runtime.serving.telemetry.signals import Meter, SessionSignals
from partita_runtime.serving.transport.bounded_http import http_client
from partita_runtime.serving.transport.clock import now_micros
from partita_runtime.serving.transport.transport import TCP, Transport

if TYPE_CHECKING:
    from partita_runtime.serving.telemetry.tracing import RequestTracer

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.25
FIRST_SECONDS: Final = 0.02
"""How often to check whether the first plan can serve, and whether held requests can be let in."""

CONNECT_SECONDS: Final = 2.0
"""How long the session of another version may take to accept a connection."""
MOST_FORWARDED: Final = 1024
"""Most requests that other versions answer at a time."""


class ReplicaDirectory(Protocol):
    """Where replicas are found (`directory.Directory`)."""

    async def replicas(self, session_key: str) -> Sequence[Announcement]:
        """The replicas of a session. Raises LookupError while the directory is away."""


class Session:
    """Serves one session; use it on one event loop."""

    def __init__(
        self,
        session_key: str,
        settings: FrontendSettings,
        directory: ReplicaDirectory,
        tracer: "RequestTracer | None" = None,
        coordinator: CoordinatorFinder | None = None,
        transport: Transport = TCP,
    ) -> None:
        """`coordinator` schedules while the session has several frontends. `transport` connects to replicas."""
        self.key = session_key
        self.settings = settings
        self.tracer = tracer
        """Samples and traces requests; None if requests are not traced."""
        self.bodies = BodyMemory(settings.max_reading_bytes)
        """Memory of the request bodies that are being read, by all servers of the session."""
        self.clients = Authenticator()
        """Whose requests are answered."""
        self.versions: tuple[VersionRoute, ...] = ()
        """Other versions of the session, which answer some requests."""
        self.copies: set[asyncio.Task[None]] = set()
        """Copies of requests on their way to shadow versions, by all servers of the session."""
        self.answers_samples = False
        """Whether samples of a quality check are answered."""
        self.images = ImageDecoder(settings.image_threads, settings.max_image_bytes, self.bodies)
        self.meter = Meter()
        """Counts the requests of this frontend."""
        self.request_log = RequestLogger(session_key, settings.max_log_bytes, self.meter.logged)
        """Sends a sample of the requests and answers to a sink."""
        self.waiting = WaitingRoom(settings.max_held_requests, self.bodies, self.meter)
        """Requests that are held until there are replicas."""
        self.addresses = FrontendAddresses()
        self._directory = directory
        self._coordinator = coordinator
        self._transport = transport
        self._epochs = EpochSwitch(session_key, settings.switch_patience_seconds, self._executor_for)
        self._measurement = SessionMeasurement(
            session_key, self.meter, self.waiting, self._epochs, self.addresses, coordinator
        )
        self._replicas: Sequence[Announcement] = ()
        self._replicas_needed = asyncio.Event()
        """Set while requests are held: new replicas should be noticed at once."""
        self._first_plan: asyncio.Task[None] | None = None
        """Ends once a plan serves."""
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to find replicas, on this event loop; does nothing the second time."""
        if self._first_plan is None:
            self._first_plan = asyncio.create_task(self._begin_soon())
            loops = (self._find_replicas_forever(), self._tick_forever(), self._admit_held_forever())
            self._running = [self._first_plan, *(asyncio.create_task(loop) for loop in loops)]

    @cached_property
    def versions_client(self) -> httpx.AsyncClient:
        """Sends requests to the sessions that are other versions; made when there is one to send."""
        patience = httpx.Timeout(None, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS)
        return http_client(MOST_FORWARDED, timeout=patience)

    def close(self) -> None:
        """Disconnect from all replicas and end all processes."""
        for task in self._running:
            task.cancel()
        if "versions_client" in self.__dict__:
            asyncio.get_running_loop().create_task(self.versions_client.aclose())
        self._epochs.close()
        self._measurement.close()
        self.images.close()
        self.request_log.close()

    @property
    def serving(self) -> EpochExecutor | None:
        """The executor that takes requests; None before the first plan's replicas are there."""
        return self._epochs.current

    @property
    def ready(self) -> bool:
        """Whether requests are answered: every stage of the current plan has a replica, or requests are held."""
        current = self._epochs.current
        dispatcher = current.dispatcher if current else None
        return is_complete(dispatcher) or (self.may_hold and dispatcher is not None and dispatcher.scheduled)

    @property
    def may_hold(self) -> bool:
        """Whether requests are held while there are no replicas."""
        current = self._epochs.current
        return current is not None and current.hold_micros is not None

    @property
    def holds(self) -> bool:
        """Whether a request that arrives now is held."""
        current = self._epochs.current
        return current is not None and current.hold_micros is not None and not current.dispatcher.can_serve

    def hold(self, waiter: Waiter, requested: InferRequest, now: int) -> Place:
        """Hold a request until there are replicas. Raises UnservedError (503) if there is no room for it."""
        current = self._epochs.current
        hold = (current.hold_micros if current else None) or 0
        size = sum(sample.nbytes for tensor in requested.inputs.values() for sample in tensor)
        place = self.waiting.enter(waiter, requested.samples, size, now, now + hold)
        self._replicas_needed.set()
        return place

    async def first_plan(self, seconds: float) -> None:
        """Return once a plan serves, or after `seconds`. The session must have been started."""
        if self._first_plan is not None:
            await asyncio.wait({self._first_plan}, timeout=seconds)

    def reconfigure(self, epoch: Epoch) -> None:
        """Move to `epoch` as soon as its replicas and functions are ready; the current epoch serves until then.

        Its clients, its other versions and its request log are those of all requests from now on. While its check is
        awaited, only samples are executed on it.
        """
        self.clients.allow(epoch.clients)
        self.versions = epoch.versions
        self.request_log.follow(epoch.request_log)
        self.answers_samples = epoch.check is not None
        self._epochs.awaits_check = epoch.check is CheckState.AWAITED
        changed_at_once = {"clients": None, "versions": (), "request_log": None, "check": None}
        self._epochs.move_to(epoch.model_copy(update=changed_at_once))

    def executor_of(self, plan: str) -> EpochExecutor | None:
        """What executes samples on this plan, also before it serves; None if it cannot be executed here now."""
        return self._epochs.executor_of(plan)

    def signals(self) -> SessionSignals:
        """The measurements of all frontends over the session's autoscaling window.

        They are of the old plan for as long as requests finish on it.
        """
        return self._measurement.signals(self._replicas, self.request_log.problem)

    @property
    def total(self) -> Meter:
        """How the requests at all frontends ended, since the counting began."""
        return self._measurement.total

    def _executor_for(self, epoch: Epoch) -> EpochExecutor:
        sampled = None if self.tracer is None else self.tracer.sub_requests(epoch.plan)
        scheduling, settings = self._scheduling(epoch), self.settings
        return EpochExecutor(epoch, self.meter, settings, scheduling, sampled, self._transport)

    def _scheduling(self, epoch: Epoch) -> MakeScheduler:
        """With one frontend its own core decides, with several the coordinator."""
        if epoch.session.frontend.replicas > 1 and self._coordinator is not None:
            return partial(RemoteScheduler, self._coordinator)
        traces = self.settings.trace_directory
        return partial(CoreInProcess, traces=None if traces is None else Path(traces))

    async def _find_replicas_forever(self) -> None:
        """Separate from the ticks, which must not wait for the directory."""
        while True:
            try:
                self._replicas = await self._directory.replicas(self.key)
            except LookupError as error:
                logger.warning("session %s: %s", self.key, error)
                self._replicas = ()
            except Exception:
                logger.exception("session %s", self.key)
            self._epochs.connect_pending(self._replicas)
            await asyncio.sleep(TICK_SECONDS)

    async def _begin_soon(self) -> None:
        """A frontend that has just started checks more often than at ticks."""
        while self._epochs.current is None:
            self._epochs.try_switch()
            await asyncio.sleep(FIRST_SECONDS)

    async def _admit_held_forever(self) -> None:
        """While requests are held, check more often than at ticks."""
        while True:
            await self._replicas_needed.wait()
            try:
                self._epochs.try_switch()
                self._admit_held()
            except Exception:
                logger.exception("session %s", self.key)
            if not self.waiting:
                self._replicas_needed.clear()
            await asyncio.sleep(FIRST_SECONDS)

    def _admit_held(self) -> None:
        current = self._epochs.current
        if current is not None and current.dispatcher.scheduled and current.dispatcher.can_serve:
            self.waiting.open(current.dispatcher.width, now_micros())
        self.waiting.expire(now_micros())

    async def _tick_forever(self) -> None:
        while True:
            try:
                self._epochs.tick(self._replicas)
                self._measurement.tick()
            except Exception:
                logger.exception("session %s", self.key)
            await asyncio.sleep(TICK_SECONDS)
