"""`partita local apply` and `delete`."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_devtools.cli.failures import dev_errors_as_failure
from partita_devtools.cli.local.options import (
    manifests_option,
    named_object,
    namespace_option,
    read_pools_and_sessions,
    state_dir_option,
    timeout_option,
    wait_option,
    with_client,
)
from partita_devtools.environment import DevEnvironment
from partita_devtools.errors import DevError
from partita_devtools.local.environment import add_pools, local_command, require_ray, up_command
from partita_devtools.local.objects import ObjectReference, find, reference_to
from partita_devtools.local.objects import delete as delete_object
from partita_devtools.operator_process import operator_log
from partita_devtools.sessions.liveness import while_running
from partita_devtools.sessions.objects import apply_manifests
from partita_devtools.sessions.watch import SessionWatch
from partita_operator.cli.errors import BadInput
from partita_operator.cli.output import OutputFormat, emit, output_option, report
from partita_operator.kube.client import KubernetesClient

_DELETION_TIMEOUT_S: Final = 180.0

Facts = dict[str, Any]
"""An object and what became of it, for programs."""


@click.command()
@manifests_option
@namespace_option
@state_dir_option
@timeout_option
@wait_option
@output_option
@dev_errors_as_failure
def apply(
    paths: tuple[Path, ...], namespace: str, state_dir: Path, timeout_s: float, wait: bool, output: OutputFormat
) -> None:
    """Create or change pools and sessions, and wait until the sessions serve."""
    if not paths:
        raise BadInput("give manifests with -f, such as -f manifests/")
    pools, sessions = read_pools_and_sessions(paths, namespace)
    changed = apply_objects(state_dir, pools, sessions, timeout_s if wait else None)
    emit(changed, output)


@click.command()
@click.argument("references", nargs=-1, metavar="[KIND/NAME]...", type=named_object)
@manifests_option
@namespace_option
@state_dir_option
@output_option
@dev_errors_as_failure
def delete(
    references: tuple[ObjectReference, ...],
    paths: tuple[Path, ...],
    namespace: str,
    state_dir: Path,
    output: OutputFormat,
) -> None:
    """Delete objects by reference (such as isess/traffic) or by manifest, and wait until they are gone."""
    requested = [(reference, namespace if reference.is_namespaced else "") for reference in references]
    if paths:
        pools, sessions = read_pools_and_sessions(paths, namespace)
        # Sessions first: their replicas use the pools.
        requested += [(reference_to(session), str(session.metadata.namespace)) for session in sessions]
        requested += [(reference_to(pool), "") for pool in pools]
    if not requested:
        raise BadInput("give what to delete, such as isess/NAME, or manifests with -f")
    gone = with_client(state_dir, lambda client, _: _delete(client, requested, state_dir))
    emit(gone, output)


def apply_objects(
    state_dir: Path, pools: Sequence[GPUPool], sessions: Sequence[InferenceSession], timeout_s: float | None
) -> list[Facts]:
    """Apply pools and sessions, and wait until the sessions serve; without a timeout, do not wait. Raises DevError."""

    async def work(client: KubernetesClient, environment: DevEnvironment) -> list[Facts]:
        require_ray(environment, state_dir)
        await asyncio.to_thread(add_pools, environment, pools, state_dir, report)
        await apply_manifests(client, pools, sessions)
        for reference in (*map(reference_to, pools), *map(reference_to, sessions)):
            report(f"{reference} applied")
        urls: Sequence[str | None] = [None] * len(sessions)
        if timeout_s is not None:
            waits = (_until_serving(client, session, environment, state_dir, timeout_s) for session in sessions)
            urls = await while_running(asyncio.gather(*waits), environment, up_command(state_dir))
        state = "applied" if timeout_s is None else "serving"
        return [
            *(_facts(reference_to(pool), "", "applied") for pool in pools),
            *(
                {**_facts(reference_to(session), str(session.metadata.namespace), state), "url": url}
                for session, url in zip(sessions, urls, strict=True)
            ),
        ]

    return with_client(state_dir, work)


async def _until_serving(
    client: KubernetesClient, session: InferenceSession, environment: DevEnvironment, state_dir: Path, timeout_s: float
) -> str | None:
    """The session's URL."""
    name, namespace = session.metadata.name, str(session.metadata.namespace)
    more = local_command("describe", state_dir, f"isess/{name}", "-n", namespace)
    advice = f"More: {more}\nThe operator's log: {operator_log(environment.state_dir)}"
    watch = SessionWatch(client, session, (), report, environment.ray.serve_url)
    found = await watch.until_serving(timeout_s, advice)
    report(f"isess/{name} serves at {found.session.status.url}")
    return found.session.status.url


async def _delete(
    client: KubernetesClient, requested: Sequence[tuple[ObjectReference, str]], state_dir: Path
) -> list[Facts]:
    gone = []
    for reference, namespace in requested:
        if not await delete_object(client, reference, namespace):
            report(f"{reference} does not exist")
            gone.append(_facts(reference, namespace, "missing"))
            continue
        deadline = time.monotonic() + _DELETION_TIMEOUT_S
        while await _exists(client, reference, namespace):
            if time.monotonic() > deadline:
                command = local_command("describe", state_dir, str(reference), "-n", namespace or "default")
                raise DevError(f"{reference} is not gone after {_DELETION_TIMEOUT_S:.0f} s; to see why: {command}")
            await asyncio.sleep(0.3)
        report(f"{reference} deleted")
        gone.append(_facts(reference, namespace, "deleted"))
    return gone


async def _exists(client: KubernetesClient, reference: ObjectReference, namespace: str) -> bool:
    present = await find(client, ObjectReference(reference.kind), namespace)
    return any(document["metadata"]["name"] == reference.name for document in present)


def _facts(reference: ObjectReference, namespace: str, state: str) -> Facts:
    return {
        "kind": reference.kind.name,
        "name": reference.name,
        **({"namespace": namespace} if reference.is_namespaced else {}),
        "state": state,
    }
