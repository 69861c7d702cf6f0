"""The coordinator of a session as a named actor: the first of its frontends makes it, and it ends after the last."""

import asyncio
import logging
from typing import Any, Final

import ray
from ray.actor import ActorHandle

from partita_runtime.logs import log_as_environment_says
from partita_runtime.serving.central.coordinator import CoordinatorServer
from partita_runtime.serving.deploy.directory import NAMESPACE
from partita_runtime.serving.transport.actor_calls import RayTransport
from partita_runtime.serving.transport.kind import TransportKind
from partita_runtime.serving.transport.transport import Transport
from partita_runtime.serving.transport.wire import PeerAddress

logger = logging.getLogger(__name__)

_CHECK_SECONDS: Final = 5.0
_DESERTED_CHECKS: Final = 12
"""After so many checks without a frontend the coordinator ends."""
_ANSWER_SECONDS: Final = 5.0


def coordinator_name(session_key: str) -> str:
    """The name of a session's coordinator in the namespace of Partita's actors."""
    return f"partita-coordinator/{session_key}"


class _CoordinatorActor:
    """A `CoordinatorServer` behind Ray. If it dies, Ray restarts it, and its frontends send it everything again."""

    def __init__(self, session_key: str, kind: TransportKind) -> None:
        log_as_environment_says(session=session_key)
        self._server = CoordinatorServer(session_key, RayTransport(kind, NAMESPACE))
        self._starting: asyncio.Task[PeerAddress] | None = None
        self._watching: asyncio.Task[None] | None = None

    async def address(self) -> PeerAddress:
        """Where it listens."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._server.start(ray.util.get_node_ip_address()))
            self._watching = asyncio.create_task(self._end_when_deserted())
        return await self._starting

    async def _end_when_deserted(self) -> None:
        checks = 0
        while checks < _DESERTED_CHECKS:
            await asyncio.sleep(_CHECK_SECONDS)
            checks = checks + 1 if self._server.deserted else 0
        logger.info("no frontend is left; the coordinator ends")
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


class ActorCoordinatorFinder:
    """Finds a session's coordinator by its actor's name (a `coordinator_link.CoordinatorFinder`)."""

    def __init__(self, session_key: str, kind: TransportKind = TransportKind.STREAMS) -> None:
        """`kind` is how the coordinator is to listen, if this makes it."""
        self.transport: Transport = RayTransport(kind)
        self._session_key = session_key
        self._kind = kind
        self._actor: ActorHandle[Any] | None = None

    async def address(self) -> PeerAddress:
        """Where the coordinator listens. Raises LookupError while it is away; call again later."""
        if self._actor is None:
            self._actor = (
                ray.remote(_CoordinatorActor)
                .options(
                    name=coordinator_name(self._session_key),
                    namespace=NAMESPACE,
                    lifetime="detached",
                    get_if_exists=True,
                    num_cpus=0,
                    max_restarts=-1,
                )
                .remote(self._session_key, self._kind)
            )
        try:
            address: PeerAddress = await asyncio.wait_for(self._actor.address.remote(), _ANSWER_SECONDS)
        except (ray.exceptions.RayError, TimeoutError) as error:
            self._actor = None  # a new one may have the same name
            raise LookupError(f"the coordinator of {self._session_key} is away: {error!r}") from error
        return address
