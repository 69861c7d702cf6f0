"""Whether the Redis answers that keeps the state of Ray's heads, and accepts the password."""

import asyncio
import time
from contextlib import suppress
from enum import Enum, auto
from typing import Final

from partita_operator.settings.kuberay import KubeRaySettings
from partita_operator.settings.section import plain

_SECONDS: Final = 15.0
"""How long an answer counts."""
_TIMEOUT_SECONDS: Final = 5.0
_DEFAULT_PORT: Final = 6379
_TLS: Final = "rediss://"
_REFUSALS: Final = (b"-WRONGPASS", b"-ERR AUTH", b"-ERR Client sent AUTH", b"-ERR invalid password")
"""How Redis answers a wrong password, and any password if it has none."""
_UNTIL: Final = "Replicas serve on. Until {}, Ray's heads cannot start, and nothing can be rolled out or scaled"


class _NoAnswerError(Exception):
    """A Redis does not answer; the message says why."""


class _Login(Enum):
    """What a Redis that answers says to the password."""

    ACCEPTED = auto()
    REFUSED = auto()
    MISSING = auto()
    """It requires one, and the operator has none."""


class RedisCheck:
    """Asks each Redis of the settings for an answer from time to time, with the operator's password if it has one."""

    def __init__(self, settings: KubeRaySettings) -> None:
        """The address is as Ray takes it: HOST:PORT, or redis://HOST:PORT, or several separated by commas.

        Of rediss:// (TLS) only the connection is checked.
        """
        self._settings = settings
        self._known: dict[str, tuple[str, float]] = {}
        """The problem of each address, and when it was asked."""

    async def problem(self, namespace: str) -> str:
        """What is wrong with the namespace's Redis, as a sentence without its full stop.

        Empty if nothing is wrong, or if there is no Redis.
        """
        address = self._settings.redis_address_of(namespace)
        if not address:
            return ""
        problem, asked = self._known.get(address, ("", -_SECONDS))
        if time.monotonic() - asked >= _SECONDS:
            self._known[address] = (problem, time.monotonic())
            problem = await self._ask(address)
            self._known[address] = (problem, time.monotonic())
        return problem

    async def _ask(self, address: str) -> str:
        password = plain(self._settings.redis_password)
        problems = []
        for place in address.split(","):
            try:
                login = await _asked(place.strip(), password)
            except _NoAnswerError as error:
                problems.append(str(error))
                continue
            return self._login_problem(address, login)
        named = f"the Redis at {address} (kuberay.redisAddress)"
        return f"{named} does not answer: {'; '.join(problems)}. {_UNTIL.format('it answers')}"

    def _login_problem(self, address: str, login: _Login) -> str:
        """What is wrong with the password. The heads may have another one, of which the operator knows nothing."""
        if login is _Login.ACCEPTED or (login is _Login.MISSING and self._settings.redis_secret):
            return ""
        if login is _Login.MISSING:
            advice = "requires a password: name its Secret in kuberay.redisPasswordSecret"
        else:
            advice = (
                "refuses the password of kuberay.redisPasswordSecret. After a change of the password, restart the "
                "Redis and the operator"
            )
        return f"the Redis at {address} (kuberay.redisAddress) {advice}. {_UNTIL.format('it accepts the password')}"


async def _asked(place: str, password: str | None) -> _Login:
    """What the Redis at HOST:PORT says to the password. Raises _NoAnswerError."""
    plain_place = place.removeprefix(_TLS).removeprefix("redis://")
    host, _, port = plain_place.rpartition(":") if ":" in plain_place else (plain_place, "", str(_DEFAULT_PORT))
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            if place.startswith(_TLS):
                return _Login.ACCEPTED
            if password is not None:
                writer.write(_command("AUTH", password))
                if (await reader.readline()).startswith(_REFUSALS):
                    return _Login.REFUSED
            writer.write(_command("PING"))
            answer = await reader.readline()
    except TimeoutError as error:
        raise _NoAnswerError(f"no answer within {_TIMEOUT_SECONDS:g} s") from error
    except (OSError, ValueError) as error:
        raise _NoAnswerError(str(error)) from error
    finally:
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
    if answer.startswith((b"+PONG", b"-NOPERM")):
        return _Login.ACCEPTED
    if answer.startswith(b"-NOAUTH"):
        return _Login.MISSING
    raise _NoAnswerError(f"it answered {answer.decode(errors='replace').strip()!r}")


def _command(*words: str) -> bytes:
    """A command in Redis' protocol, with words of any characters."""
    encoded = [word.encode() for word in words]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
