"""`partita console`: serves a read-only web page of a cluster's pools, sessions and plans."""

import asyncio
import signal

import click

from partita_operator.cli.cluster.options import ClusterPlace, cluster_options
from partita_operator.cli.errors import BadInput
from partita_operator.cli.option_types import Number
from partita_operator.cli.output import report
from partita_operator.console.web.hosts import is_host_name, is_loopback
from partita_operator.console.web.server import AddressError, ConsoleAddress, serve_console
from partita_operator.kube.connection import NoClusterError, load_config


@click.command()
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. With another one than this machine's own, everybody who reaches it sees what you may "
    "read: there are no passwords and no encryption.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port to listen on; 0: a free one."
)
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="A host name under which browsers may reach it, such as that of a proxy; can be given several times. IP "
    "addresses and localhost are always allowed.",
)
@click.option(
    "--interval", type=Number(1, 3600), default=5.0, show_default=True, help="Seconds between checks of the API server."
)
@cluster_options
def console(host: str, port: int, names: tuple[str, ...], interval: float, place: ClusterPlace) -> None:
    """Serve a read-only web page of pools, sessions and plans, until Ctrl-C.

    It reads the cluster with your kubeconfig, so it shows what you may read. With --namespace, only the sessions of
    that namespace, or of several separated by commas.
    """
    if not host:
        raise click.BadParameter("give an address, such as 127.0.0.1.", param_hint="--host")
    for name in names:
        if not is_host_name(name):
            raise click.BadParameter(
                f"{name!r} is not a host name; give it without scheme and port, such as console.example.com.",
                param_hint="--allow-host",
            )
    if not is_loopback(host):
        report(
            f"Everybody who reaches {host} sees what your kubeconfig may read: there is no password and no encryption."
        )
    address = ConsoleAddress(host, port, names)
    try:
        asyncio.run(_serve(place, address, interval))
    except NoClusterError as error:
        raise BadInput(str(error)) from error
    except AddressError as error:
        raise BadInput(f"{error}. Give another --port, or an address of this machine as --host.") from error


async def _serve(place: ClusterPlace, address: ConsoleAddress, interval: float) -> None:
    """Serve until SIGTERM, by which Kubernetes ends a pod."""
    connection = await load_config(place.kubeconfig, place.context)
    namespaces = tuple(filter(None, (place.namespace or "").split(",")))
    serving = asyncio.create_task(serve_console(connection, namespaces, address, interval, _print_url))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # by Ctrl-C
            raise


def _print_url(url: str) -> None:
    click.echo(url)
    report("Open it in a browser. Ctrl-C ends it.")
