"""HTTP requests whose answers have a limited size: without redirects, proxies and compression."""

import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import httpx

MOST_BYTES: Final = 64 << 20
"""Most bytes of an answer."""

Headers = Iterable[tuple[str, str]]


class HttpReply(NamedTuple):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class BegunReply(NamedTuple):
    """An answer that has begun to arrive."""

    status: int
    headers: Mapping[str, str]
    parts: AsyncIterator[bytes]
    """Of its body. Raises TooLongError, and the errors of httpx."""


class TooLongError(Exception):
    """An answer has too many bytes."""

    def __init__(self) -> None:
        super().__init__(f"it has more than {MOST_BYTES:,} bytes")


def http_client(
    most_connections: int, headers: Mapping[str, str] | None = None, timeout: httpx.Timeout | None = None
) -> httpx.AsyncClient:
    """A client that sends `headers` with each request. Without a `timeout` it waits for as long as its caller."""
    return httpx.AsyncClient(
        headers=headers,
        timeout=timeout,
        trust_env=False,
        verify=ssl.create_default_context(),
        limits=httpx.Limits(max_connections=most_connections),
    )


async def exchange(client: httpx.AsyncClient, method: str, url: str, headers: Headers, content: bytes) -> HttpReply:
    """Send a request and read the whole answer. Raises TooLongError, and the errors of httpx."""
    async with begun_reply(client, method, url, headers, content) as reply:
        return await whole_reply(reply)


async def whole_reply(reply: BegunReply) -> HttpReply:
    """Read the rest of an answer. Raises TooLongError, and the errors of httpx."""
    return HttpReply(reply.status, reply.headers, b"".join([part async for part in reply.parts]))


@asynccontextmanager
async def begun_reply(
    client: httpx.AsyncClient, method: str, url: str, headers: Headers, content: bytes
) -> AsyncIterator[BegunReply]:
    """Send a request and read the beginning of the answer. Raises the errors of httpx."""
    asked = (*headers, ("Accept-Encoding", "identity"))
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in asked]
    async with client.stream(method, url, headers=encoded, content=content) as answer:
        yield BegunReply(answer.status_code, answer.headers, _limited(answer.aiter_raw()))


async def _limited(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    received = 0
    async for part in parts:
        received += len(part)
        if received > MOST_BYTES:
            raise TooLongError
        yield part
