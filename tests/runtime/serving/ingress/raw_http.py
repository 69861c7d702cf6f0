"""HTTP written and read by hand, to send malformed requests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.runtime.serving.in_process.stand import Stand

PATH = "/v2/models/plain/infer"


def post(body: bytes, headers: dict[str, Any] | None = None, path: str = PATH) -> bytes:
    """The bytes of a request; `headers` may be wrong."""
    lines = {"Host": "stand", "Content-Length": len(body), **(headers or {})}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value is not None)
    return f"POST {path} HTTP/1.1\r\n{text}\r\n".encode() + body


@contextlib.asynccontextmanager
async def connected(running: Stand) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, port = running.url.split("/")[0].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def exchanged(running: Stand, sent: bytes) -> tuple[int, str]:
    """Status and body of the answer to these bytes."""
    async with connected(running) as (reader, writer):
        writer.write(sent)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        length = next(int(line[15:]) for line in head.lower().splitlines() if line.startswith(b"content-length:"))
        return int(head.split()[1]), (await asyncio.wait_for(reader.readexactly(length), 20)).decode()
