"""kopf's watches of Partita's objects, as calls into the operator's event loop.

Only kopf's low-level events are used: it writes nothing to the objects. It takes an event loop to be its own and
cancels whatever else it finds there, so that it has one in a thread of its own.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from socket import gethostname
from typing import Any, Final

import kopf
from lightkube.config.kubeconfig import SingleConfig

from partita_api.meta import GROUP, VERSION
from partita_operator.kube.cache import Kind
from partita_operator.kube.connection import kopf_connection

logger = logging.getLogger(__name__)
logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # it says of every event that it was handled

WATCH_SECONDS: Final = 300
"""How long one watch request lasts."""
RESTART_S: Final = 2.0

OnEvent = Callable[[Kind, str | None, dict[str, Any]], None]
"""Called with an object's kind, the type of the event (None for those listed at first) and the object."""


class Backoffs:
    """Pauses between kopf's requests, without end: an API server that is away comes back some time."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.5, 1.0, 2.0, 5.0)
        while True:
            yield 10.0


async def watch(config: SingleConfig, on_event: OnEvent, health_port: int) -> None:
    """Watch until cancelled; `on_event` is called in the present event loop."""
    loop = asyncio.get_running_loop()

    def report(kind: Kind, type: str | None, raw: dict[str, Any]) -> None:
        loop.call_soon_threadsafe(on_event, kind, type, raw)

    while True:
        stop = threading.Event()
        ended = loop.create_future()

        def run(stop: threading.Event = stop, ended: asyncio.Future[None] = ended) -> None:
            try:
                asyncio.run(_run_kopf(config, report, health_port, stop))
            except Exception:
                logger.exception("watching the cluster failed; it is tried again")
            finally:
                loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_result(None))

        thread = threading.Thread(target=run, name="kopf", daemon=True)
        thread.start()
        try:
            await asyncio.shield(ended)
        finally:
            stop.set()
            await asyncio.shield(ended)
        await asyncio.sleep(RESTART_S)


async def _run_kopf(config: SingleConfig, report: OnEvent, health_port: int, stop: threading.Event) -> None:
    await kopf.operator(
        registry=_registry(config, report),
        settings=_settings(),
        # By itself kopf would ask for the user's name, which a container's user has not.
        identity=f"partita@{gethostname()}",
        standalone=True,
        clusterwide=True,
        stop_flag=stop,
        liveness_endpoint=f"http://0.0.0.0:{health_port}/healthz",
    )


def _registry(config: SingleConfig, report: OnEvent) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf_connection(config)

    def handler(kind: Kind) -> Callable[..., Awaitable[None]]:
        async def handle(event: kopf.RawEvent, **_: Any) -> None:
            report(kind, event["type"], dict(event["object"]))

        return handle

    for kind, plural in (
        (Kind.POOL, "gpupools"),
        (Kind.SESSION, "inferencesessions"),
        (Kind.PLAN, "pipelineplans"),
    ):
        kopf.on.event(GROUP, VERSION, plural, registry=registry, id=f"on-{plural}")(handler(kind))
    return registry


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True  # the definitions are there, as they have been listed; this saves permissions
    settings.watching.server_timeout = WATCH_SECONDS
    settings.networking.request_timeout = 30.0
    settings.networking.error_backoffs = Backoffs()
    return settings
