"""Whether the Redis answers that keeps the state of Ray's heads."""

import asyncio
import time
from contextlib import suppress
from typing import Final

_SECONDS: Final = 15.0
"""How long an answer counts."""
_TIMEOUT_SECONDS: Final = 5.0
_DEFAULT_PORT: Final = 6379
_TLS: Final = "rediss://"


class RedisCheck:
    """Asks a Redis for an answer from time to time. It needs no password: a refusal is an answer, too."""

    def __init__(self, address: str) -> None:
        """`address` is as Ray takes it: HOST:PORT, or redis://HOST:PORT, or several separated by commas.

        Of rediss:// (TLS) only the connection is checked.
        """
        self._address = address
        self._problem = ""
        self._asked = -_SECONDS

    async def problem(self) -> str:
        """What is wrong, as a sentence without its full stop; empty if the Redis answers, or if there is none."""
        if self._address and time.monotonic() - self._asked >= _SECONDS:
            self._asked = time.monotonic()
            self._problem = await self._ask()
        return self._problem

    async def _ask(self) -> str:
        problems = [await _asked(place.strip()) for place in self._address.split(",")]
        if "" in problems:
            return ""
        return (
            f"the Redis at {self._address} (kuberay.redisAddress) does not answer: {'; '.join(problems)}. "
            "Replicas serve on. Until it answers, Ray's heads cannot start, and nothing can be rolled out or scaled"
        )


async def _asked(place: str) -> str:
    """Why the Redis at HOST:PORT does not answer; empty if it does."""
    plain = place.removeprefix(_TLS).removeprefix("redis://")
    host, _, port = plain.rpartition(":") if ":" in plain else (plain, "", str(_DEFAULT_PORT))
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            if place.startswith(_TLS):
                return ""
            writer.write(b"PING\r\n")
            answer = await reader.readline()
    except TimeoutError:
        return f"no answer within {_TIMEOUT_SECONDS:g} s"
    except (OSError, ValueError) as error:
        return str(error)
    finally:
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
    if answer.startswith((b"+PONG", b"-NOAUTH", b"-NOPERM")):
        return ""
    return f"it answered {answer.decode(errors='replace').strip()!r}"
