"""Watches of Partita's objects and the admission webhook, by kopf, as calls into the operator's event loop.

Only kopf's low-level events are used, so kopf writes nothing to the objects. kopf cancels all tasks of its event loop,
so it runs with a separate loop in a separate thread.
"""

import asyncio
import logging
import ssl
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from socket import gethostname
from typing import Any, Final

import kopf

from partita_api.meta import GROUP, VERSION
from partita_operator.kube.cache import Kind
from partita_operator.kube.client import PAGE_SIZE
from partita_operator.kube.connection import Connection, kopf_connection, kopf_session
from partita_operator.reconcile.admission import Verdict

logger = logging.getLogger(__name__)
logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # otherwise it logs every event

WATCH_SECONDS: Final = 300
"""How long one watch request lasts."""
logging.getLogger("kopf.objects").addFilter(lambda record: not record.getMessage().startswith("Webhook "))
# kopf logs every refusal as a failure; handlers/admission.py logs refusals.

RESTART_S: Final = 2.0
LOOK_AGAIN_S: Final = 30.0
"""How often the namespaces that can be watched are looked for again."""
CANCEL_S: Final = 10.0
"""How long kopf's tasks have to end by themselves, before each cancellation."""
WEBHOOK_PATH: Final = "admission"
"""Path of the admission webhook's URL."""
_PLURALS: Final = {Kind.POOL: "gpupools", Kind.SESSION: "inferencesessions", Kind.PLAN: "pipelineplans"}

OnEvent = Callable[[Kind, str | None, dict[str, Any]], None]
"""Receives an object's kind, the type of the event (None for the initial list) and the object."""


OnManifest = Callable[[Kind, dict[str, Any] | None, dict[str, Any]], Coroutine[Any, Any, Verdict]]
"""Receives the kind, the present object (None for a new one) and the new object."""


@dataclass(frozen=True)
class Webhook:
    """The admission webhook: its port, its certificates and the function that reviews manifests."""

    port: int
    certificates: Path
    """Directory with tls.crt and tls.key; read again when they change."""
    review: OnManifest
    client_ca: str = ""
    """PEM of the authority of the clients' certificates; empty: clients need none."""


class Backoffs:
    """The pauses between kopf's attempts, without an end: it tries again until the API server answers."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.5, 1.0, 2.0, 5.0)
        while True:
            yield 10.0


async def _everywhere() -> tuple[str, ...]:
    return ()


async def watch(
    connection: Connection,
    on_event: OnEvent,
    health_port: int,
    webhook: Webhook | None = None,
    watchable: Callable[[], Awaitable[tuple[str, ...]]] = _everywhere,
) -> None:
    """Watch what `watchable` says, and serve the webhook if there is one, until cancelled.

    Both call into the current event loop. `watchable` has the namespaces that can be watched now, none for all. It is
    asked again regularly: kopf ends if one watch is refused.
    """
    loop = asyncio.get_running_loop()

    def report(kind: Kind, type: str | None, raw: dict[str, Any]) -> None:
        loop.call_soon_threadsafe(on_event, kind, type, raw)

    async def review(kind: Kind, old: dict[str, Any] | None, new: dict[str, Any]) -> Verdict:
        assert webhook is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(webhook.review(kind, old, new), loop))

    def registry() -> kopf.OperatorRegistry:
        registry = _registry(connection, report)
        if webhook is not None:
            _add_webhook(registry, review)
        return registry

    while True:
        namespaces = await watchable()
        stop = threading.Event()
        ended = loop.create_future()

        def run(
            stop: threading.Event = stop,
            ended: asyncio.Future[None] = ended,
            namespaces: tuple[str, ...] = namespaces,
        ) -> None:
            try:
                asyncio.run(_run_kopf(registry(), _settings(webhook), health_port, stop, namespaces))
            except Exception:
                logger.exception("watching the cluster failed; the operator tries again")
            finally:
                loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_result(None))

        thread = threading.Thread(target=run, name="kopf", daemon=True)
        thread.start()
        changing = asyncio.create_task(_change(watchable, namespaces))
        try:
            await asyncio.wait([ended, changing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            changing.cancel()
            stop.set()
            await asyncio.shield(ended)
        await asyncio.sleep(RESTART_S)


async def _change(watchable: Callable[[], Awaitable[tuple[str, ...]]], before: tuple[str, ...]) -> None:
    """Return once other namespaces can be watched."""
    found = before
    while found == before:
        await asyncio.sleep(LOOK_AGAIN_S)
        found = await watchable()


async def _run_kopf(
    registry: kopf.OperatorRegistry,
    settings: kopf.OperatorSettings,
    health_port: int,
    stop: threading.Event,
    namespaces: Collection[str],
) -> None:
    ends = asyncio.Event()

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        ends.set()

    # Tasks that exist before kopf starts do not belong to kopf.
    before = asyncio.all_tasks()
    guard = asyncio.create_task(_cancel_what_remains(ends, before))
    try:
        await kopf.operator(
            registry=registry,
            settings=settings,
            # kopf's default needs a user name, which a container's user does not have.
            identity=f"partita@{gethostname()}",
            standalone=True,
            clusterwide=not namespaces,
            namespaces=tuple(namespaces),
            stop_flag=stop,
            liveness_endpoint=f"http://0.0.0.0:{health_port}/healthz",
        )
    finally:
        guard.cancel()
        stop.set()  # A thread of kopf waits for it, and the event loop ends after its threads.


async def _cancel_what_remains(ends: asyncio.Event, before: Collection[asyncio.Task[Any]]) -> None:
    """Cancel kopf's tasks again and again from its cleanup on, some seconds after kopf has done so itself.

    kopf ends if one watch fails. Another watch that waits for its next attempt then ignores its one cancellation, and
    kopf waits for it forever (https://github.com/nolar/kopf/issues/1276), and all watches have ended.
    """
    await ends.wait()
    while True:
        await asyncio.sleep(CANCEL_S)
        for task in asyncio.all_tasks() - {*before, asyncio.current_task()}:
            task.cancel()


def _registry(connection: Connection, report: OnEvent) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    last: kopf.ConnectionInfo | None = None

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        nonlocal last
        info = await kopf_connection(connection)
        if info == last:
            await asyncio.sleep(RESTART_S)  # the API server has refused these credentials, and kopf asks again at once
        last = info
        return kopf_session(info)

    def handler(kind: Kind) -> Callable[..., Awaitable[None]]:
        async def handle(event: kopf.RawEvent, **_: Any) -> None:
            report(kind, event["type"], dict(event["object"]))

        return handle

    for kind, plural in _PLURALS.items():
        kopf.on.event(GROUP, VERSION, plural, registry=registry, id=f"on-{plural}")(handler(kind))
    return registry


def _add_webhook(registry: kopf.OperatorRegistry, review: OnManifest) -> None:
    def handler(kind: Kind) -> Callable[..., Awaitable[None]]:
        async def handle(old: kopf.Body | None, new: kopf.Body, warnings: list[str], **_: Any) -> None:
            verdict = await review(kind, dict(old) if old else None, dict(new))
            warnings.extend(verdict.warnings)
            if verdict.refusal:
                raise kopf.AdmissionError(verdict.refusal, code=HTTPStatus.FORBIDDEN)

        return handle

    # Both have the same id, because it becomes the path of the webhook's URL.
    for kind in (Kind.POOL, Kind.SESSION):
        kopf.on.validate(
            GROUP, VERSION, _PLURALS[kind], registry=registry, id=WEBHOOK_PATH, operations=["CREATE", "UPDATE"]
        )(handler(kind))


class _NoRecords(kopf.DiffBaseStorage):
    """No copies of earlier states: only handlers of kopf's higher level need them.

    kopf's own records are annotations, so everyone who may change an object could write ones that kopf cannot read.
    """

    def build(self, **_: Any) -> Any:
        """No state."""
        return {}

    def fetch(self, **_: Any) -> None:
        """No earlier state."""

    def store(self, **_: Any) -> None:
        """Nothing is kept."""


def _settings(webhook: Webhook | None) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    if webhook is not None:
        # The chart installs the webhook's configuration; kopf does not change it.
        settings.admission.server = kopf.WebhookServer(
            port=webhook.port,
            certfile=webhook.certificates / "tls.crt",
            pkeyfile=webhook.certificates / "tls.key",
            verify_mode=ssl.CERT_REQUIRED if webhook.client_ca else None,
            verify_cadata=webhook.client_ca or None,
        )
    settings.posting.enabled = False
    settings.scanning.disabled = True  # the definitions exist, since they have been listed; this saves permissions
    settings.persistence.diffbase_storage = _NoRecords()
    settings.watching.server_timeout = WATCH_SECONDS
    settings.watching.chunk_size = PAGE_SIZE
    settings.networking.request_timeout = 30.0
    settings.networking.error_backoffs = Backoffs()
    return settings
