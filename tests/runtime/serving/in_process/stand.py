"""A session in one process: frontend and stage workers on one event loop, with real sockets and without Ray."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import numpy as np
import uvicorn
from tests.patience import PATIENCE_SECONDS
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import Application, stage_refs

from partita_runtime.execution.build import build_executor, warmed
from partita_runtime.execution.executor import BuiltExecutor
from partita_runtime.serving.central.coordinator_link import CoordinatorFinder
from partita_runtime.serving.deploy.directory import Announcement, Entries
from partita_runtime.serving.deploy.monitoring_access import authorization, token_digest
from partita_runtime.serving.deploy.names import route_prefix
from partita_runtime.serving.deploy.stage_arguments import StageArguments
from partita_runtime.serving.ingress.asgi import Receive, Send, asgi_application
from partita_runtime.serving.ingress.http_server import http_endpoint
from partita_runtime.serving.replica.loaded_models import LoadedModels
from partita_runtime.serving.replica.worker import StageWorker
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.settings import FrontendSettings
from partita_runtime.serving.telemetry.tracing import RequestTracer
from partita_runtime.serving.transport.transport import TCP, Transport
from partita_runtime.serving.transport.wire import PeerAddress

SAMPLE = np.zeros((1, 2, 2), np.float32)
"""Default input of the models under test."""
MONITORING_TOKEN: Final = "token-of-the-namespace"
MONITORING: Final = authorization(MONITORING_TOKEN)
"""Header of requests that read measurements."""


class LocalDirectory:
    """The directory's entries without the actor; entries do not expire."""

    def __init__(self) -> None:
        self._entries = Entries()
        self.answers = asyncio.Event()
        """Whether it answers."""
        self.answers.set()

    async def replicas(self, session_key: str) -> Sequence[Announcement]:
        await self.answers.wait()
        return self.announced(session_key)

    def announce(self, announcement: Announcement) -> None:
        text = announcement.model_dump_json()
        self._entries.announce(announcement.replica, announcement.session_key, text, 0.0)

    def withdraw(self, replica: str) -> None:
        self._entries.withdraw(replica)

    def announced(self, session_key: str) -> list[Announcement]:
        return [Announcement.model_validate_json(text) for text in self._entries.replicas(session_key, 0.0)]


@dataclass
class Stand:
    """A running session."""

    app: Application
    session: Session
    directory: LocalDirectory
    client: httpx.AsyncClient
    url: str
    """host:port/namespace/session, in tritonclient's format."""
    transport: Transport = TCP
    """Of the replicas that are added."""
    workers: dict[str, StageWorker] = field(default_factory=dict)
    vgpus: dict[str, LoadedModels] = field(default_factory=dict)
    """Replicas of a sub-cluster."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    async def add_replicas(
        self, app: Application, wrap: Callable[[BuiltExecutor], BuiltExecutor] = lambda built: built
    ) -> list[str]:
        """Start all replicas of the application's plan and announce them. Returns their ids."""
        if app.subcluster is not None:
            return [await self.add_vgpu(app, wrap) for _ in range(app.replicas)]
        return [await self.add_replica(arguments, wrap) for arguments in app.stage_arguments()]

    async def add_replica(
        self,
        arguments: StageArguments,
        wrap: Callable[[BuiltExecutor], BuiltExecutor] = lambda built: built,
        way: Callable[[PeerAddress], PeerAddress] = lambda address: address,
    ) -> str:
        """Start and announce one replica. Returns its id. `way` gives the address for others."""
        built = wrap(build_executor(arguments.build))
        worker = StageWorker(built, arguments.build.max_batch, transport=self.transport)
        address = way(await worker.start("127.0.0.1"))
        replica = self.announce(arguments, address, built.warnings, any_size=built.any_size)
        self.workers[replica] = worker
        return replica

    async def add_vgpu(self, app: Application, wrap: Callable[[BuiltExecutor], BuiltExecutor]) -> str:
        """Start a vGPU that holds all models of the application's plan. Returns its id."""
        vgpu = f"vgpu-{next(self._numbers)}"
        self.vgpus[vgpu] = LoadedModels(vgpu, vgpu, "127.0.0.1", lambda build: wrap(warmed(build)), self.transport)
        await self.load(vgpu, app)
        return vgpu

    async def load(self, vgpu: str, *apps: Application, memory: int | None = None) -> None:
        """Load exactly the models of these plans on a vGPU, and announce them."""
        desired = [arguments for app in apps for arguments in app.stage_arguments()[:: app.replicas]]
        for announcement in self.vgpus[vgpu].announcements:
            if announcement.plan not in [app.plan_name for app in apps]:
                self.directory.withdraw(announcement.replica)
        await self.vgpus[vgpu].load(desired, memory)
        for announcement in self.vgpus[vgpu].announcements:
            self.directory.announce(announcement)

    def announce(
        self,
        arguments: StageArguments,
        address: PeerAddress,
        warnings: tuple[str, ...] = (),
        *,
        any_size: bool = False,
    ) -> str:
        """Announce a replica that already listens. Returns its id."""
        replica = f"{arguments.plan}-{arguments.module}-{arguments.stage}-{next(self._numbers)}"
        announcement = Announcement(
            replica=replica,
            session_key=arguments.session_key,
            plan=arguments.plan,
            module=arguments.module,
            pipeline=arguments.pipeline,
            stage=arguments.stage,
            node=replica,
            address=address,
            profile=arguments.profile,
            warnings=warnings,
            any_size=any_size,
        )
        self.directory.announce(announcement)
        return replica

    def replica_of(self, stage: int) -> str:
        """A replica of a stage."""
        ref = next(ref for ref in stage_refs(self.app) if ref.stage == stage)
        return next(a.replica for a in self.directory.announced(self.app.session.key) if a.ref == ref)

    async def kill(self, replica: str) -> None:
        """End a replica like a crash."""
        self.directory.withdraw(replica)
        await self.workers.pop(replica).stop()

    async def retire(self, replica: str) -> None:
        """End a replica as Serve does: drain it first."""
        self.directory.withdraw(replica)
        worker = self.workers.pop(replica)
        await asyncio.wait_for(worker.drain(), PATIENCE_SECONDS)
        await worker.stop()

    async def until(self, reached: Callable[[], object], what: str) -> None:
        """Wait until a condition holds."""
        await until(reached, what)

    async def serves(self, plan: str) -> None:
        """Wait until the frontend serves this plan and has finished the previous one."""
        await until(lambda: self.session.ready and self.session.signals().plan == plan, f"{plan} serves")


async def until(reached: Callable[[], object], what: str) -> None:
    """Poll until `reached()` is true. Fails with `what` after a time limit."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        assert time.monotonic() < deadline, f"timed out: {what}"
        await asyncio.sleep(0.02)


async def post(running: Stand, samples: int = 1) -> tuple[int, str]:
    """Send SAMPLE this number of times in one request. Returns status and text of the answer."""
    content, headers = infer_body(SAMPLE.repeat(samples, axis=0))
    answer = await running.client.post(f"/v2/models/{running.app.name}/infer", content=content, headers=headers)
    return answer.status_code, answer.text


Way = Callable[[Session], contextlib.AbstractAsyncContextManager[str]]
"""HTTP access to a session within the context; yields host:port."""


@contextlib.asynccontextmanager
async def behind_uvicorn(session: Session) -> AsyncIterator[str]:
    """HTTP as behind Ray Serve, which has removed the session's prefix or, with it, says which one it is."""
    application, prefix = asgi_application(session, token_digest(MONITORING_TOKEN)), route_prefix(session.key)

    async def prefixed(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        has_prefix = scope["type"] == "http" and scope["path"].startswith(f"{prefix}/")
        await application({**scope, "root_path": prefix} if has_prefix else scope, receive, send)

    config = uvicorn.Config(
        prefixed, host="127.0.0.1", port=0, log_level="error", lifespan="off", timeout_keep_alive=600
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started, "the HTTP server listens")
    host, port = server.servers[0].sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.should_exit = True
        await serving


@contextlib.asynccontextmanager
async def on_its_own_port(session: Session) -> AsyncIterator[str]:
    """HTTP as on the session's `httpPort`."""
    endpoint = http_endpoint(session, "127.0.0.1")
    await endpoint.move_to(0)
    await until(lambda: session.addresses.http, "HTTP is listened for")
    try:
        yield str(session.addresses.http)
    finally:
        await endpoint.close()


WAYS: Final[Mapping[str, Way]] = {"behind Serve's server": behind_uvicorn, "on its own port": on_its_own_port}
"""Both ways, by name."""


@contextlib.asynccontextmanager
async def stand(
    app: Application,
    settings: FrontendSettings = FrontendSettings(function_processes=1),  # noqa: B008 - it is frozen
    wrap: Callable[[BuiltExecutor], BuiltExecutor] = lambda built: built,
    serving: bool = True,
    tracer: RequestTracer | None = None,
    way: Way = behind_uvicorn,
    coordinator: CoordinatorFinder | None = None,
    beside: Stand | None = None,
    transport: Transport = TCP,
    replica_transport: Transport | None = None,
) -> AsyncIterator[Stand]:
    """The session of `app` behind a real HTTP server; `serving` waits until it is ready.

    `beside` is another frontend of the session; both use its replicas. Without `replica_transport`, replicas have the
    `transport` of the frontend.
    """
    directory = LocalDirectory() if beside is None else beside.directory
    session = Session(app.session.key, settings, directory, tracer, coordinator, transport)
    async with (
        way(session) as url,
        httpx.AsyncClient(base_url=f"http://{url}", timeout=PATIENCE_SECONDS) as client,
    ):
        running = Stand(app, session, directory, client, url, replica_transport or transport)
        session.start()
        session.reconfigure(app.epoch)
        if beside is None:
            await running.add_replicas(app, wrap)
        try:
            if serving:
                await running.serves(app.plan_name)
            yield running
        finally:
            session.close()
            for worker in running.workers.values():
                await worker.stop()
            for vgpu in running.vgpus.values():
                await vgpu.close()
