"""`partita local get`, `describe`, `url` and `logs`."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import yaml
from rich.console import Console
from rich.table import Table

from partita_devtools.cli.failures import dev_errors_as_failure
from partita_devtools.cli.local.options import (
    named_object,
    namespace_option,
    object_reference,
    session_object,
    state_dir_option,
    with_client,
)
from partita_devtools.environment import DevEnvironment
from partita_devtools.errors import DevError
from partita_devtools.local.environment import local_command, running_environment
from partita_devtools.local.logs import follow, log_files, read_logs
from partita_devtools.local.objects import ObjectReference, find, parse_reference, rows
from partita_operator.cli.cluster.options import session_name
from partita_operator.cli.output import OutputFormat, emit, output_option
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.resources import EventResource

_DEFAULT_KINDS: Final = ("gpool", "isess", "pplan")
_DESCRIBED_METADATA: Final = ("name", "namespace", "labels", "annotations", "finalizers")


@click.command()
@click.argument("references", nargs=-1, metavar="[KIND[/NAME]]...", type=object_reference)
@namespace_option
@click.option("--all-namespaces", "-A", is_flag=True, help="Objects of all namespaces.")
@state_dir_option
@output_option
@dev_errors_as_failure
def get(
    references: tuple[ObjectReference, ...],
    namespace: str,
    all_namespaces: bool,
    state_dir: Path,
    output: OutputFormat,
) -> None:
    """List pools (gpool), sessions (isess) and plans (pplan), or one object such as isess/traffic. Default: all."""
    requested = references or tuple(map(parse_reference, _DEFAULT_KINDS))
    place = "" if all_namespaces else namespace

    async def work(client: KubernetesClient, _: DevEnvironment) -> list[tuple[ObjectReference, Sequence[Document]]]:
        return [(reference, await find(client, reference, place)) for reference in requested]

    found = with_client(state_dir, work)
    items = [_without_managers(document) for _, documents in found for document in documents]
    emit(items, output, lambda console: _print_tables(found, console))


@click.command()
@click.argument("requested", metavar="KIND/NAME", type=named_object)
@namespace_option
@state_dir_option
@output_option
@dev_errors_as_failure
def describe(requested: ObjectReference, namespace: str, state_dir: Path, output: OutputFormat) -> None:
    """Show an object: its spec, its conditions and its events."""

    async def work(client: KubernetesClient, _: DevEnvironment) -> tuple[Document, Sequence[Document]]:
        (document,) = await find(client, requested, namespace)
        uid = document["metadata"]["uid"]
        events = await client.list(EventResource, fields=f"involvedObject.uid={uid}")
        return document, sorted(events, key=lambda event: str(event["lastTimestamp"]))

    document, events = with_client(state_dir, work)
    data = {**_without_managers(document), "events": [_event(event) for event in events]}
    emit(data, output, lambda console: _print_object(document, events, console))


@click.command()
@click.argument("reference", metavar="SESSION", type=session_object)
@namespace_option
@state_dir_option
@output_option
@dev_errors_as_failure
def url(reference: ObjectReference, namespace: str, state_dir: Path, output: OutputFormat) -> None:
    """Print the URL of SESSION."""

    async def work(client: KubernetesClient, _: DevEnvironment) -> Document:
        (document,) = await find(client, reference, namespace)
        return document

    found = (with_client(state_dir, work).get("status") or {}).get("url")
    if found is None:
        more = local_command("describe", state_dir, str(reference), "-n", namespace)
        raise DevError(f"{reference} has no URL yet; to see why: {more}")
    data = {"name": reference.name, "namespace": namespace, "url": found}
    emit(data, output, lambda _console: click.echo(found))


@click.command()
@click.argument("session", required=False)
@namespace_option
@click.option("--follow", "-f", "following", is_flag=True, help="Print new lines until Ctrl-C.")
@click.option(
    "--lines", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="Last lines of each file."
)
@click.option("--contains", default="", help="Only lines that contain this text.")
@state_dir_option
@dev_errors_as_failure
def logs(session: str | None, namespace: str, following: bool, lines: int, contains: str, state_dir: Path) -> None:
    """Print the operator's log, and with SESSION those of its frontend and replicas, too."""
    key = f"{namespace}/{session_name(session)}" if session is not None else None
    files = log_files(running_environment(state_dir), key)
    for line in read_logs(files, lines, contains):
        click.echo(line)
    if following:
        for line in follow(files, contains):
            click.echo(line)


def _without_managers(document: Document) -> dict[str, Any]:
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    return {**document, "metadata": metadata}


def _event(event: Document) -> dict[str, Any]:
    return {key: event[key] for key in ("lastTimestamp", "type", "reason", "message")}


def _print_tables(found: Sequence[tuple[ObjectReference, Sequence[Document]]], console: Console) -> None:
    now = datetime.now(UTC)
    for reference, documents in found:
        if not documents:
            console.print(f"no {reference.kind.plural}")
            continue
        header, cells = rows(reference.kind, documents, now)
        table = Table(*header, title=reference.kind.plural, title_justify="left")
        for row in cells:
            table.add_row(*row)
        console.print(table)


def _print_object(document: Document, events: Sequence[Document], console: Console) -> None:
    metadata, status = document["metadata"], dict(document.get("status") or {})
    conditions = status.pop("conditions", [])
    head = {key: metadata[key] for key in _DESCRIBED_METADATA if key in metadata}
    shown = {"kind": document["kind"], "metadata": head, "spec": document.get("spec") or {}, "status": status}
    console.print(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), markup=False, soft_wrap=True, end="")
    table = Table("Condition", "Status", "Reason", "Message", title="Conditions", title_justify="left")
    for condition in conditions:
        table.add_row(condition["type"], condition["status"], condition["reason"], condition["message"])
    console.print(table)
    table = Table("Time", "Type", "Reason", "Message", title="Events", title_justify="left")
    for event in events:
        table.add_row(*(str(value) for value in _event(event).values()))
    console.print(table)
