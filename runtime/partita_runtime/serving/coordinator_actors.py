"""The coordinators of a session as named actors. Its frontends make them, and they end after the last frontend.

A session with frontends on two nodes or more has two coordinators, on different nodes with frontends. All frontends use
one of them. When that one ends, they use the other one at once: Ray needs seconds to notice that a node is lost, and
more to start a process elsewhere.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from partita_runtime.logs import log_as_environment_says
from partita_runtime.serving.central.coordinator import CoordinatorServer
from partita_runtime.serving.central.coordinator_link import CoordinatorState
from partita_runtime.serving.deploy.directory import NAMESPACE
from partita_runtime.serving.transport.actor_calls import RayTransport
from partita_runtime.serving.transport.kind import TransportKind
from partita_runtime.serving.transport.tls_files import TlsFiles
from partita_runtime.serving.transport.transport import Transport
from partita_runtime.serving.transport.wire import PeerAddress

logger = logging.getLogger(__name__)

COORDINATORS: Final = 2
_CHECK_SECONDS: Final = 5.0
_DESERTED_CHECKS: Final = 12
"""After so many checks without a frontend on its node the coordinator ends."""
_ANSWER_SECONDS: Final = 5.0
"""How long a frontend waits for a coordinator, which may have to start."""
_OTHERS_SECONDS: Final = 0.5
"""How long a frontend waits for another coordinator after one has answered."""
_HUNG_SECONDS: Final = 10.0
"""After so long without an answer of any coordinator, a frontend makes one more, also on a node that has one."""


def coordinator_name(session_key: str, number: int, tls: TlsFiles | None = None) -> str:
    """The name of a session's coordinator in the namespace of Partita's actors.

    Frontends with TLS cannot connect to a coordinator without it, so they have others.
    """
    return f"partita-coordinator/{session_key}/{number}{'' if tls is None else '/tls'}"


class _CoordinatorActor:
    """A `CoordinatorServer` behind Ray. If it dies, its frontends make another one and send it everything again."""

    def __init__(self, session_key: str, kind: TransportKind, tls: TlsFiles | None) -> None:
        log_as_environment_says(session=session_key)
        self._server = CoordinatorServer(session_key, RayTransport(kind, tls, NAMESPACE))
        self._node = ray.get_runtime_context().get_node_id()
        self._starting: asyncio.Task[PeerAddress] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._asked = False

    async def state(self, node: str) -> CoordinatorState:
        """Where it listens, and whether frontends use it. It stays while frontends of its `node` ask."""
        self._asked = self._asked or node == self._node
        if self._starting is None:
            self._starting = asyncio.create_task(self._server.start(ray.util.get_node_ip_address()))
            self._watching = asyncio.create_task(self._end_when_deserted())
        return CoordinatorState(await self._starting, not self._server.deserted, self._node)

    async def _end_when_deserted(self) -> None:
        """End without a frontend on this node: Ray's autoscaler would never see the node as idle."""
        checks = 0
        while checks < _DESERTED_CHECKS:
            await asyncio.sleep(_CHECK_SECONDS)
            checks = 0 if self._asked else checks + 1
            self._asked = False
        logger.info("no frontend is left on this node; the coordinator ends")
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


class ActorCoordinatorFinder:
    """Finds a session's coordinators by their actors' names (a `coordinator_link.CoordinatorFinder`)."""

    def __init__(
        self, session_key: str, kind: TransportKind = TransportKind.STREAMS, tls: TlsFiles | None = None
    ) -> None:
        """`kind` is how the coordinators are to listen, if this makes them; `tls` is for connections to them."""
        self.transport: Transport = RayTransport(kind, tls)
        self._session_key = session_key
        self._kind = kind
        self._tls = tls
        self._node = ray.get_runtime_context().get_node_id()
        self._actors: dict[int, ActorHandle[Any]] = {}
        self._states: dict[int, CoordinatorState] = {}
        """What the actors have answered last."""
        self._last_answers: dict[int, CoordinatorState] = {}
        """Of the last call of `find`."""
        self._answered_at = 0.0
        """When a coordinator answered last, on the event loop's clock (seconds)."""
        self._obtaining: asyncio.Task[None] | None = None

    async def find(self, lost: PeerAddress | None = None) -> CoordinatorState:
        """The coordinator to use, as `CoordinatorFinder` says."""
        if len(self._actors) < COORDINATORS:
            await self._obtain()
        self._last_answers = answers = await self._answers(lost)
        if not answers:
            raise LookupError(f"no coordinator of {self._session_key} answers")
        return min(answers.items(), key=lambda answer: (not answer[1].active, answer[0]))[1]

    async def _answers(self, lost: PeerAddress | None) -> dict[int, CoordinatorState]:
        """The states of the coordinators that answer in time. Does not wait for the one that was `lost`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _ANSWER_SECONDS
        answers: dict[int, CoordinatorState] = {}
        asked = {asyncio.create_task(self._ask(*known)): known[0] for known in self._actors.items()}
        try:
            while asked and loop.time() < until:
                answered, _ = await asyncio.wait(
                    asked, timeout=until - loop.time(), return_when=asyncio.FIRST_COMPLETED
                )
                for number, state in [(asked.pop(task), task.result()) for task in answered]:
                    if state is not None:
                        self._states[number] = answers[number] = state
                        self._answered_at = loop.time()
                        until = min(until, loop.time() + _OTHERS_SECONDS)
                if answers and all(self._address(number) == lost for number in asked.values()):
                    break
        finally:
            for task in asked:
                task.cancel()
        return answers

    async def _ask(self, number: int, actor: ActorHandle[Any]) -> CoordinatorState | None:
        try:
            state: CoordinatorState = await actor.state.remote(self._node if self._keeps(number) else "")
        except ray.exceptions.ActorUnavailableError:
            return None
        except ray.exceptions.RayError as error:
            logger.info("%s is away: %s", self._name(number), error)
            if self._actors.get(number) is actor:
                del self._actors[number]
                self._states.pop(number, None)
            return None
        return state

    def _keeps(self, number: int) -> bool:
        """Whether the coordinator is to stay: not if it is a second one on a node, made while the first one hung."""
        own, others = self._last_answers.get(number), self._last_answers.items()
        return own is None or all(other >= number or state.node != own.node for other, state in others)

    def _name(self, number: int) -> str:
        return coordinator_name(self._session_key, number, self._tls)

    def _address(self, number: int) -> PeerAddress | None:
        state = self._states.get(number)
        return None if state is None else state.address

    async def _obtain(self) -> None:
        """Obtain the missing handles in a thread. Waits for them only if there are none.

        Ray's calls for this block for as long as the head is away.
        """
        if self._obtaining is None or self._obtaining.done():
            nodes = [state.node for state in self._states.values()]
            hung = asyncio.get_running_loop().time() > self._answered_at + _HUNG_SECONDS
            # One that has never answered may still start.
            may_make = bool(nodes) and (hung or self._node not in nodes)
            self._obtaining = asyncio.create_task(self._obtained(may_make))
        if not self._actors:
            await asyncio.wait([self._obtaining], timeout=_ANSWER_SECONDS)

    async def _obtained(self, may_make: bool) -> None:
        missing = [number for number in range(COORDINATORS) if number not in self._actors]
        try:
            self._actors |= await asyncio.to_thread(self._found_or_made, missing, may_make)
        except (ray.exceptions.RayError, ValueError) as error:
            logger.info("Ray does not give the coordinators of %s: %s", self._session_key, error)

    def _found_or_made(self, missing: Sequence[int], may_make: bool) -> dict[int, ActorHandle[Any]]:
        """The `missing` actors that exist; one more is made if there is none at all, or if it `may_make` one."""
        found: dict[int, ActorHandle[Any]] = {}
        for number in missing:
            with suppress(ValueError):  # there is none
                found[number] = ray.get_actor(self._name(number), namespace=NAMESPACE)
        absent = [number for number in missing if number not in found]
        if absent and (may_make or len(absent) == COORDINATORS):
            found[absent[0]] = self._make(absent[0])
        return found

    def _make(self, number: int) -> ActorHandle[Any]:
        """This coordinator, which starts on this node if there is none."""
        actor: ActorHandle[Any] = (
            ray.remote(_CoordinatorActor)
            .options(
                name=self._name(number),
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                # With soft=True, Ray puts an actor without resources on another node as often as not.
                scheduling_strategy=NodeAffinitySchedulingStrategy(self._node, soft=False),
            )
            .remote(self._session_key, self._kind, self._tls)
        )
        actor.state.remote(self._node)  # so that it ends without frontends, also if this one ends now
        return actor
