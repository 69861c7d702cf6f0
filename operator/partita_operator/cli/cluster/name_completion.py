"""Completes names of sessions and pools in a shell. It takes at most a second, and is silent if anything fails."""

import asyncio
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem

from partita_operator.cli.cluster.options import POOL_PREFIXES, SESSION_PREFIXES, ClusterPlace, session_name

COMPLETION_SECONDS: Final = 1.0
"""How long the cluster may take to answer."""


def complete_session(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Sessions of the namespace, as NAME or isess/NAME."""
    return _items(incomplete, _prefix(incomplete, SESSION_PREFIXES), session_names(_place(context)))


def complete_session_or_pool(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Sessions of the namespace, and pools as gpool/NAME."""
    if prefix := _prefix(incomplete, POOL_PREFIXES):
        return _items(incomplete, prefix, pool_names(_place(context)))
    return complete_session(context, parameter, incomplete)


def complete_session_or_file(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Sessions as isess/NAME, else files."""
    if _prefix(incomplete, SESSION_PREFIXES):
        return complete_session(context, parameter, incomplete)
    return [CompletionItem(incomplete, type="file")]


def session_names(place: ClusterPlace) -> Sequence[str]:
    """The sessions of the namespace; none if the cluster cannot be asked in time."""
    return _names(place, pools=False)


def pool_names(place: ClusterPlace) -> Sequence[str]:
    """The pools of the cluster; none if it cannot be asked in time."""
    return _names(place, pools=True)


session_argument = click.argument(
    "session",
    metavar="SESSION",
    callback=lambda _context, _parameter, value: session_name(value),
    shell_complete=complete_session,
)
"""The argument SESSION: `isess/NAME` or `NAME`, passed as `session: str`."""


def _items(incomplete: str, prefix: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(f"{prefix}{name}") for name in names if f"{prefix}{name}".startswith(incomplete)]


def _prefix(incomplete: str, prefixes: Iterable[str]) -> str:
    return next((prefix for prefix in prefixes if incomplete.startswith(prefix)), "")


def _place(context: click.Context) -> ClusterPlace:
    given = context.params
    return ClusterPlace(given.get("kubeconfig"), given.get("context"), given.get("namespace"))


def _names(place: ClusterPlace, *, pools: bool) -> Sequence[str]:
    # A shell that completes shows neither errors nor tracebacks.
    with suppress(Exception):
        return asyncio.run(_list(place, pools, time.monotonic() + COMPLETION_SECONDS))
    return ()


async def _list(place: ClusterPlace, pools: bool, deadline: float) -> Sequence[str]:
    # Imported only here: options of commands are completed without the Kubernetes client.
    from partita_operator.kube.client import KubernetesClient
    from partita_operator.kube.connection import load_config
    from partita_operator.kube.resources import ALL_NAMESPACES, PoolResource, SessionResource

    async with asyncio.timeout(deadline - time.monotonic()):
        connection = await load_config(place.kubeconfig, place.context)
        if not connection.configuration.proxy and not _answers(connection.server, deadline):
            return ()
        namespace = ALL_NAMESPACES if pools else place.namespace or connection.namespace or "default"
        kind: Any = PoolResource if pools else SessionResource
        async with KubernetesClient(connection) as client:
            return sorted(raw["metadata"]["name"] for raw in await client.list(kind, namespace))


def _answers(server: str, deadline: float) -> bool:
    """Whether the server accepts a connection before the deadline.

    The name is resolved in a thread that ends with the command. asyncio would wait for its own at the end.
    """
    address = urlsplit(server)
    port = address.port or (443 if address.scheme == "https" else 80)
    accepted = []

    def connect() -> None:
        with suppress(OSError), socket.create_connection((address.hostname, port), COMPLETION_SECONDS):
            accepted.append(True)

    thread = Thread(target=connect, daemon=True)
    thread.start()
    thread.join(max(0.0, deadline - time.monotonic()))
    return bool(accepted)
