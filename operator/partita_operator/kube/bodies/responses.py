"""Answers of the API server as the official client and kopf read them, without values that are nested too deeply.

Both clients decode events of watches themselves, and an event that they cannot decode ends all watches of its kind.
"""

from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

from aiohttp import ClientPayloadError, ClientResponse
from aiohttp.connector import Connection

from partita_operator.kube.bodies.decoding import decoded, shallow

MAX_LINE: Final = 16 * 1024 * 1024
"""Bytes of one event of a watch. The API server stores objects of at most 3 MB."""


class ShallowResponse(ClientResponse):
    """An answer of JSON, or a stream of lines of JSON."""

    async def start(self, connection: Connection) -> "ShallowResponse":
        """Receive the head."""
        await super().start(connection)
        self.content = _ShallowLines(self.content)  # type: ignore[assignment]
        return self

    async def json(self, **_: Any) -> Any:
        """The document. Raises ValueError if the answer is not JSON."""
        return decoded(await self.read())


class _ShallowLines:
    """A body whose lines are shallow. What is not read by lines stays as it is."""

    def __init__(self, body: Any) -> None:
        self._body = body
        self._lines: deque[bytes] = deque()
        self._begun: list[bytes] = []
        """Parts of a line whose end has not come yet."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    async def iter_chunked(self, _size: int) -> AsyncIterator[bytes]:
        """The lines."""
        while line := await self.readline():
            yield line

    async def readline(self) -> bytes:
        """The next line with its end; empty at the end of the body. Raises ClientPayloadError if it is too long."""
        while not self._lines:
            part = await self._body.readany()
            if not part:
                last, self._begun = b"".join(self._begun), []
                return last
            first, *others = part.split(b"\n")
            self._begun.append(first)
            if others:
                self._lines += [b"".join(self._begun), *others[:-1]]
                self._begun = [others[-1]]
            if sum(map(len, self._begun)) > MAX_LINE:
                raise ClientPayloadError(f"An event of a watch has more than {MAX_LINE} bytes.")
        line = self._lines.popleft()
        return (shallow(line) if line else line) + b"\n"
