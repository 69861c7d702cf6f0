"""Servers that answer every request in the way that a test says."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Answering = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(
    answering: Answering, certificate: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, list[str]]]:
    """A server that answers every request in this way: its URL, and the requests so far."""
    requests: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            requests.append((await reader.readline()).decode().strip())
            await reader.readuntil(b"\r\n\r\n")
            await answering(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=certificate)
    try:
        scheme = "http" if certificate is None else "https"
        yield f"{scheme}://127.0.0.1:{listening.sockets[0].getsockname()[1]}", requests
    finally:
        listening.close()


def complete(body: bytes, *headers: str, status: str = "200 OK") -> Answering:
    async def answer(writer: asyncio.StreamWriter) -> None:
        lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", "")
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()

    return answer


def endless(part: bytes, pause_seconds: float) -> Answering:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not writer.is_closing():
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause_seconds)

    return answer


async def silence(writer: asyncio.StreamWriter) -> None:
    """Never answers."""
    while not writer.is_closing():
        await asyncio.sleep(0.05)
        writer.transport.resume_reading()
