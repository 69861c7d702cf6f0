"""Options and errors that the commands of local mode share."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_devtools.environment import DevEnvironment
from partita_devtools.errors import DevError
from partita_devtools.local.environment import DEFAULT_STATE_DIR, running_environment
from partita_devtools.local.objects import ObjectReference, parse_reference
from partita_devtools.sessions.objects import manifest_client
from partita_operator.cli.cluster.options import session_name
from partita_operator.cli.errors import BadInput
from partita_operator.cli.manifests import read_manifests
from partita_operator.cli.option_types import Number
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import NoClusterError, load_config
from partita_operator.kube.errors import ApiError, ApiUnreachableError
from partita_operator.kube.retries import ApiServerUnavailableError

T = TypeVar("T")

state_dir_option = click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_STATE_DIR,
    show_default=True,
    help="Folder for objects, kubeconfig and logs.",
)
namespace_option = click.option("--namespace", "-n", default="default", show_default=True, help="Namespace.")
manifests_option = click.option(
    "--filename",
    "-f",
    "paths",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    help="File with manifests, or folder with such files; repeatable.",
)


timeout_option = click.option(
    "--timeout",
    "timeout_s",
    type=Number(1, 86_400),
    default=1200.0,
    show_default=True,
    help="Seconds to wait until the sessions serve.",
)
wait_option = click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the sessions serve.")


def object_reference(text: str) -> ObjectReference:
    """The reference KIND or KIND/NAME."""
    try:
        return parse_reference(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def named_object(text: str) -> ObjectReference:
    """The reference KIND/NAME."""
    reference = object_reference(text)
    if reference.name is None:
        raise click.BadParameter(f"give the name, too: {reference.kind.short}/NAME")
    return reference


def session_object(text: str) -> ObjectReference:
    """The session of NAME or isess/NAME."""
    return named_object(f"isess/{session_name(text)}")


def read_pools_and_sessions(
    paths: tuple[Path, ...], namespace: str
) -> tuple[tuple[GPUPool, ...], tuple[InferenceSession, ...]]:
    """The pools and sessions in manifests; a session without a namespace gets `namespace`. Raises BadInput."""
    found = read_manifests(paths)
    others = sorted({*found.others, *(plan.kind for plan in found.plans)})
    if others:
        raise BadInput(
            f"local mode takes manifests of kind GPUPool and InferenceSession only; leave out: {', '.join(others)}"
        )
    if paths and not found.pools and not found.sessions:
        raise BadInput(f"{', '.join(map(str, paths))}: there is no GPUPool and no InferenceSession in it")
    sessions = []
    for session in found.sessions:
        metadata = session.metadata.model_copy(update={"namespace": session.metadata.namespace or namespace})
        sessions.append(session.model_copy(update={"metadata": metadata}))
    return found.pools, tuple(sessions)


def with_client(state_dir: Path, work: Callable[[KubernetesClient, DevEnvironment], Awaitable[T]]) -> T:
    """The result of `work` with a client of the running API server. Raises DevError."""
    environment = running_environment(state_dir)

    async def run() -> T:
        async with manifest_client(await load_config(environment.kubeconfig)) as client:
            return await work(client, environment)

    try:
        return asyncio.run(run())
    except ApiError as error:
        raise DevError(f"the API server refuses: {error.message}") from error
    except (NoClusterError, ApiServerUnavailableError, ApiUnreachableError) as error:
        raise DevError(str(error)) from error
