"""The rank of a session as a named actor: made by the first of several frontends, ended when the last one has left."""

import asyncio
import logging
from typing import Any, Final

import ray
from ray.actor import ActorHandle

from partita_runtime.logs import log_as_environment_says
from partita_runtime.serving.central.coordinator import RankServer
from partita_runtime.serving.deploy.directory import NAMESPACE
from partita_runtime.serving.transport.actor_calls import RayCarrier
from partita_runtime.serving.transport.kind import Transport
from partita_runtime.serving.transport.transport import Carrier
from partita_runtime.serving.transport.wire import Hop

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 5.0
_DESERTED_LOOKS: Final = 12
"""So often nobody is there before the rank ends."""
_ANSWER_SECONDS: Final = 5.0


def rank_name(session_key: str) -> str:
    """The name of a session's rank in the namespace of Partita's actors."""
    return f"partita-rank/{session_key}"


class _RankActor:
    """A `RankServer` behind Ray. Ray starts it anew if it dies; its frontends then find it and tell it everything."""

    def __init__(self, session_key: str, transport: Transport) -> None:
        log_as_environment_says(session=session_key)
        self._server = RankServer(session_key, RayCarrier(transport, NAMESPACE))
        self._starting: asyncio.Task[Hop] | None = None
        self._watching: asyncio.Task[None] | None = None

    async def address(self) -> Hop:
        """Where frontends find it."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._server.start(ray.util.get_node_ip_address()))
            self._watching = asyncio.create_task(self._end_when_deserted())
        return await self._starting

    async def _end_when_deserted(self) -> None:
        looks = 0
        while looks < _DESERTED_LOOKS:
            await asyncio.sleep(_LOOK_SECONDS)
            looks = looks + 1 if self._server.deserted else 0
        logger.info("no frontend is left, so the rank ends")
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


class RankActor:
    """Where a session's rank is found (a `rank_link.RankFinder`)."""

    def __init__(self, session_key: str, transport: Transport = Transport.STREAMS) -> None:
        """`transport` is how it is to listen, if it is not there yet."""
        self.carrier: Carrier = RayCarrier(transport)
        self._session_key = session_key
        self._transport = transport
        self._actor: ActorHandle[Any] | None = None

    async def address(self) -> Hop:
        """Where it listens. Raises LookupError while it is away; just call again later."""
        if self._actor is None:
            self._actor = (
                ray.remote(_RankActor)
                .options(
                    name=rank_name(self._session_key),
                    namespace=NAMESPACE,
                    lifetime="detached",
                    get_if_exists=True,
                    num_cpus=0,
                    max_restarts=-1,
                )
                .remote(self._session_key, self._transport)
            )
        try:
            hop: Hop = await asyncio.wait_for(self._actor.address.remote(), _ANSWER_SECONDS)
        except (ray.exceptions.RayError, TimeoutError) as error:
            self._actor = None  # it may be made anew under its name
            raise LookupError(f"the rank of {self._session_key} is away: {error!r}") from error
        return hop
