"""The server of the console on one address, until it is cancelled."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from partita_operator.console.reading.follower import ClusterFollower
from partita_operator.console.reading.object_events import ObjectEventReader
from partita_operator.console.web.application import ConsoleApplication
from partita_operator.console.web.hosts import is_address
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import Connection

_SHUTDOWN_S: Final = 0.5
"""How long streams may last after Ctrl-C."""


class AddressError(Exception):
    """The address cannot be listened on."""


@dataclass(frozen=True)
class ConsoleAddress:
    """Where the console listens."""

    host: str
    port: int
    """0: a free one."""
    names: tuple[str, ...] = ()
    """Host names under which it answers, in addition to addresses and localhost."""


async def serve_console(
    connection: Connection,
    namespaces: Collection[str],
    address: ConsoleAddress,
    interval_s: float,
    listening: Callable[[str], None],
) -> None:
    """Serve the pages of the cluster, with the rights of the connection; calls `listening` with their URL.

    Raises AddressError and NoClusterError.
    """
    async with KubernetesClient(connection) as client:
        own = connection.namespace or "default"
        follower = ClusterFollower(client, connection.server, _now, namespaces, own, interval_s)
        events = ObjectEventReader(client, _now, interval_s)
        names = (*address.names, *(() if is_address(address.host) else (address.host,)))
        pages = ConsoleApplication(follower, events, connection.server, _now, names)
        runner = web.AppRunner(pages.application(), access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        following = asyncio.create_task(follower.run())
        try:
            await _listen(runner, address)
            listening(_url(address.host, runner.addresses[0][1]))
            await following
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            await runner.cleanup()


async def _listen(runner: web.AppRunner, address: ConsoleAddress) -> None:
    try:
        await web.TCPSite(runner, address.host, address.port).start()
    except (OSError, UnicodeError) as error:  # a name that is none fails to be encoded
        reason = getattr(error, "strerror", None) or error
        raise AddressError(f"{address.host}, port {address.port}, cannot be listened on: {reason}") from error


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def _now() -> datetime:
    return datetime.now(UTC)
