"""The API server's process: `python -m partita_devtools.api_server DIRECTORY PORT CERTIFICATE KEY`.

The token is in the environment. The process ends on SIGTERM.
"""

import asyncio
import fcntl
import os
import signal
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from partita_devtools.api_server.disk import ObjectFiles
from partita_devtools.api_server.errors import RefusedError
from partita_devtools.api_server.http import application
from partita_devtools.api_server.kinds import KINDS, initial_objects
from partita_devtools.api_server.process import TOKEN_VARIABLE
from partita_devtools.api_server.store import ObjectStore
from partita_devtools.errors import DevError


def open_store(directory: Path, now: datetime) -> ObjectStore:
    """The store of the objects in a directory, with those that every cluster has. Raises DevError."""
    files = ObjectFiles(directory)
    store = ObjectStore(files.load(), files, now)
    for document in initial_objects():
        kind = next(kind for kind in KINDS.values() if kind.kind == document["kind"])
        place = (kind.api_version, kind.plural, "", document["metadata"]["name"])
        try:
            store.apply(kind, place, document, "partita-embedded", now, status=False, force=True)
            if "status" in document:
                store.apply(kind, place, document, "partita-embedded", now, status=True, force=True)
        except RefusedError as error:
            raise DevError(str(error)) from error
    return store


@contextmanager
def owned(directory: Path) -> Iterator[None]:
    """Keep other processes away from a directory. Raises DevError if another process serves it."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DevError(f"another process serves the objects in {directory}") from None
        yield


async def serve(store: ObjectStore, port: int, tls: ssl.SSLContext, token: str) -> None:
    """Serve on 127.0.0.1 until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(application(store, token), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    await stop.wait()
    await runner.cleanup()


def main() -> None:
    """Serve; a DevError ends the process with one line."""
    try:
        directory, port, certificate, key = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
        with owned(directory):
            store = open_store(directory, datetime.now(UTC))
            asyncio.run(serve(store, port, tls, os.environ[TOKEN_VARIABLE]))
    except DevError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
