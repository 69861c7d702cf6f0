"""Sends copies of answered requests to shadow versions, and compares the answers. Clients never see them."""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from partita_runtime.serving.deploy.version_routes import FORWARDED, ShadowRoute, VersionRoute
from partita_runtime.serving.ingress.http_routes import HttpHead, Operation
from partita_runtime.serving.ingress.versions.comparison import difference
from partita_runtime.serving.ingress.versions.forwarding import VersionAwayError, VersionForwarder
from partita_runtime.serving.protocol.inference import Body
from partita_runtime.serving.protocol.inference_client import AnswerError, decode_answer
from partita_runtime.serving.session.body_memory import BodyMemoryError
from partita_runtime.serving.session.session import Session

logger = logging.getLogger(__name__)

MOST_COPIES: Final = 16
"""Most copies on their way, of all shadow versions; others are dropped."""
MOST_BYTES: Final = 8 << 20
"""Largest request and largest answer that are copied and compared."""
LOG_SECONDS: Final = 10.0
"""How often the last difference of a version is logged."""


class OwnAnswer(NamedTuple):
    """The session's own answer to a request."""

    headers: Mapping[str, str]
    body: bytes


class Answered(NamedTuple):
    """A request that the session has answered, by HTTP or as it would be by HTTP."""

    head: HttpHead
    body: Body
    answer: OwnAnswer


SendCopies = Callable[[int, Callable[[], Answered]], None]
"""Sends the copies of an answered request: the size of the larger one of request and answer, and what makes both."""


class Shadowing:
    """The shadow versions of one session."""

    def __init__(self, session: Session, versions: VersionForwarder) -> None:
        self._session = session
        self._versions = versions
        self._logged: dict[str, float] = {}
        """When a difference was last logged, by version."""

    def after(self, head: HttpHead, operation: Operation) -> SendCopies | None:
        """What to do with a request once it is answered; None if it has no copies."""
        if operation is not Operation.INFER or FORWARDED in head.headers:
            return None
        drawn = random.random()
        routes = [
            (route, route.shadow)
            for route in self._session.versions
            if route.shadow is not None and not route.problem and drawn < route.shadow.share
        ]
        if not routes:
            return None

        def send(size: int, answered: Callable[[], Answered]) -> None:
            for route, shadow in routes:
                self._send(size, answered, route, shadow)

        return send

    def _send(self, size: int, answered: Callable[[], Answered], route: VersionRoute, shadow: ShadowRoute) -> None:
        copies = self._session.copies
        if len(copies) >= MOST_COPIES or size > MOST_BYTES:
            self._count(route, "dropped")
            return
        copy = asyncio.get_running_loop().create_task(self._copy(answered, route, shadow))
        copies.add(copy)
        copy.add_done_callback(copies.discard)

    async def _copy(self, answered: Callable[[], Answered], route: VersionRoute, shadow: ShadowRoute) -> None:
        try:
            head, body, answer = answered()
            reply = await self._versions.exchange(head, Operation.INFER, body, route)
            if reply.status != 200:
                self._count(route, "failed")
            elif len(reply.body) > MOST_BYTES:
                self._count(route, "dropped")
            else:
                theirs = OwnAnswer(reply.headers, reply.body)
                found = await asyncio.to_thread(_compared, answer, theirs, shadow)
                self._count(route, "different" if found else "equal")
                self._log(route, found)
        except BodyMemoryError:
            self._count(route, "dropped")
        except (VersionAwayError, AnswerError):
            self._count(route, "failed")
        except Exception:
            logger.exception("session %s: %s", self._session.key, route.label)
            self._count(route, "failed")

    def _log(self, route: VersionRoute, found: str) -> None:
        now = asyncio.get_running_loop().time()
        if found and now - self._logged.get(route.name, -LOG_SECONDS) >= LOG_SECONDS:
            self._logged[route.name] = now
            logger.warning("session %s: %s answers differently: %s", self._session.key, route.label, found)

    def _count(self, route: VersionRoute, result: str) -> None:
        self._session.meter.shadows[f"{route.name}/{result}"] += 1


def _compared(ours: OwnAnswer, theirs: OwnAnswer, shadow: ShadowRoute) -> str:
    """How the answers differ; empty if they do not. Raises AnswerError."""
    return difference(decode_answer(ours.headers, ours.body), decode_answer(theirs.headers, theirs.body), shadow)
