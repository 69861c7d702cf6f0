"""`partita local up`, `down`, `status`, `apply` and `delete`."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_devtools.cli.dev import print_status
from partita_devtools.cli.failures import dev_errors_as_failure
from partita_devtools.cli.interruption import stopped_if_interrupted
from partita_devtools.cli.local.options import (
    manifests_option,
    namespace_option,
    read_pools_and_sessions,
    state_dir_option,
    with_client,
)
from partita_devtools.environment import DevEnvironment, dev_down
from partita_devtools.errors import DevError
from partita_devtools.local.environment import add_pools, local_command, local_up
from partita_devtools.local.objects import ObjectReference, find, parse_reference, reference_to
from partita_devtools.local.objects import delete as delete_object
from partita_devtools.operator_process import launch_operator, operator_log, stop_operator
from partita_devtools.sessions.objects import apply_manifests
from partita_devtools.sessions.watch import SessionWatch
from partita_operator.cli.errors import BadInput
from partita_operator.cli.option_types import Number
from partita_operator.cli.output import OutputFormat, output_option, report
from partita_operator.kube.client import KubernetesClient

_DELETION_TIMEOUT_S: Final = 180.0

timeout_option = click.option(
    "--timeout",
    "timeout_s",
    type=Number(1, 86_400),
    default=1200.0,
    show_default=True,
    help="Seconds to wait until the sessions serve.",
)
wait_option = click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the sessions serve.")


@click.command()
@manifests_option
@click.option(
    "--python-path",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    help="Folder from which models are imported; repeatable. Default: the current one.",
)
@namespace_option
@state_dir_option
@timeout_option
@wait_option
@dev_errors_as_failure
def up(
    paths: tuple[Path, ...],
    python_path: tuple[Path, ...],
    namespace: str,
    state_dir: Path,
    timeout_s: float,
    wait: bool,
) -> None:
    """Start local mode, apply manifests, and wait until their sessions serve.

    What runs already stays as it is. Objects of an earlier run are served again. Ctrl-C stops what this command has
    started; the objects stay.
    """
    pools, sessions = read_pools_and_sessions(paths, namespace)
    with stopped_if_interrupted(state_dir):
        environment = local_up(state_dir, pools, python_path or (Path(),), report)
        launch_operator(environment, report, again=local_command("up", state_dir))
        _apply(state_dir, pools, sessions, timeout_s if wait else None)
    report(f"to see everything: {local_command('get', state_dir)}")
    report(f"for kubectl and the other commands: export KUBECONFIG={environment.kubeconfig}")
    report(f"to stop: {local_command('down', state_dir)}")


@click.command()
@state_dir_option
@click.option("--delete-data", is_flag=True, help="Also delete all objects and logs.")
@dev_errors_as_failure
def down(state_dir: Path, delete_data: bool) -> None:
    """Stop local mode. The objects stay for the next `partita local up`."""
    stop_operator(state_dir.absolute())
    dev_down(state_dir, report, delete_data=delete_data)


@click.command()
@state_dir_option
@output_option
@dev_errors_as_failure
def status(state_dir: Path, output: OutputFormat) -> None:
    """Print the state of all components; exit code 1 if one is missing."""
    print_status(state_dir, output, start=local_command("up", state_dir))


@click.command()
@manifests_option
@namespace_option
@state_dir_option
@timeout_option
@wait_option
@dev_errors_as_failure
def apply(paths: tuple[Path, ...], namespace: str, state_dir: Path, timeout_s: float, wait: bool) -> None:
    """Create or change pools and sessions, and wait until the sessions serve."""
    if not paths:
        raise BadInput("give manifests with -f, such as -f manifests/")
    pools, sessions = read_pools_and_sessions(paths, namespace)
    _apply(state_dir, pools, sessions, timeout_s if wait else None)


@click.command()
@click.argument("references", nargs=-1, metavar="[KIND/NAME]...")
@manifests_option
@namespace_option
@state_dir_option
@dev_errors_as_failure
def delete(references: tuple[str, ...], paths: tuple[Path, ...], namespace: str, state_dir: Path) -> None:
    """Delete objects by reference (such as isess/traffic) or by manifest, and wait until they are gone."""
    wanted = [(parse_reference(text), namespace) for text in references]
    if paths:
        pools, sessions = read_pools_and_sessions(paths, namespace)
        # Sessions first: their replicas use the pools.
        wanted += [(reference_to(session), str(session.metadata.namespace)) for session in sessions]
        wanted += [(reference_to(pool), "") for pool in pools]
    if not wanted:
        raise BadInput("give what to delete, such as isess/NAME, or manifests with -f")
    for reference, _ in wanted:
        if reference.name is None:
            raise BadInput(f"give the name, too: {reference.kind.short}/NAME")
    with_client(state_dir, lambda client, _: _delete(client, wanted, state_dir))


def _apply(
    state_dir: Path, pools: Sequence[GPUPool], sessions: Sequence[InferenceSession], timeout_s: float | None
) -> None:
    async def work(client: KubernetesClient, environment: DevEnvironment) -> None:
        await asyncio.to_thread(add_pools, environment, pools, state_dir, report)
        await apply_manifests(client, pools, sessions)
        for reference in (*map(reference_to, pools), *map(reference_to, sessions)):
            report(f"{reference} applied")
        if timeout_s is not None:
            await asyncio.gather(
                *(_until_serving(client, session, environment, state_dir, timeout_s) for session in sessions)
            )

    with_client(state_dir, work)


async def _until_serving(
    client: KubernetesClient, session: InferenceSession, environment: DevEnvironment, state_dir: Path, timeout_s: float
) -> None:
    name, namespace = session.metadata.name, str(session.metadata.namespace)
    more = local_command("describe", state_dir, f"isess/{name}", "-n", namespace)
    advice = f"More: {more}\nThe operator's log: {operator_log(environment.state_dir)}"
    found = await SessionWatch(client, session, (), report).until_serving(timeout_s, advice)
    report(f"isess/{name} serves at {found.session.status.url}")


async def _delete(client: KubernetesClient, wanted: Sequence[tuple[ObjectReference, str]], state_dir: Path) -> None:
    for reference, namespace in wanted:
        if not await delete_object(client, reference, namespace):
            report(f"{reference} does not exist")
            continue
        deadline = time.monotonic() + _DELETION_TIMEOUT_S
        while await _exists(client, reference, namespace):
            if time.monotonic() > deadline:
                command = local_command("describe", state_dir, str(reference), "-n", namespace or "default")
                raise DevError(f"{reference} is not gone after {_DELETION_TIMEOUT_S:.0f} s; to see why: {command}")
            await asyncio.sleep(0.3)
        report(f"{reference} deleted")


async def _exists(client: KubernetesClient, reference: ObjectReference, namespace: str) -> bool:
    present = await find(client, ObjectReference(reference.kind), namespace)
    return any(document["metadata"]["name"] == reference.name for document in present)
