"""`partita explain`: shows a session's current plan and its reasons, the pending plan and earlier plans."""

from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from partita_api.conditions import ConditionStatus
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan
from partita_operator.cli.cluster.api_server import ApiServer
from partita_operator.cli.cluster.name_completion import session_argument
from partita_operator.cli.cluster.options import ClusterPlace, cluster_options
from partita_operator.cli.output import OutputFormat, emit, output_option
from partita_operator.cli.plan_report import print_changes, print_plan


@click.command()
@session_argument
@cluster_options
@output_option
def explain(session: str, place: ClusterPlace, output: OutputFormat) -> None:
    """Explain the current plan of SESSION, what its pending plan would change, and which earlier plans are kept."""
    server = ApiServer(place)
    found = server.session(session)
    plans = server.plans(found)
    emit(_data(found, plans), output, lambda console: _print(found, plans, console))


def _data(session: InferenceSession, plans: Mapping[str, PipelinePlan]) -> dict[str, Any]:
    status = session.status.model_dump(mode="json", by_alias=True, exclude_none=True)
    active = plans.get(session.status.current_plan.name) if session.status.current_plan else None
    return {
        "session": session.key,
        "conditions": status.get("conditions", []),
        "plan": active.spec.model_dump(mode="json", by_alias=True, exclude_none=True) if active else None,
        "preview": status.get("preview"),
        "history": [{"plan": name, "kept": name in plans} for name in session.status.history],
    }


def _print(session: InferenceSession, plans: Mapping[str, PipelinePlan], console: Console) -> None:
    status = session.status
    if status.observed_generation < session.metadata.generation:
        console.print(
            "The operator has not processed the latest change of the spec yet. If this lasts, check that it runs, and "
            "serves this namespace: `namespaces` of the chart.",
            markup=False,
        )
    _print_conditions(session, console)
    active = plans.get(status.current_plan.name) if status.current_plan else None
    if active is not None:
        console.print(f"Current plan: {active.metadata.name}", markup=False)
        print_plan(session, active.spec, console)
    else:
        console.print("There is no current plan.", markup=False)
    if status.preview is not None:
        waiting = status.preview
        until = f", not before {waiting.not_before}" if waiting.not_before else ""
        before = f" (now {waiting.current_cost_per_hour})" if waiting.current_cost_per_hour is not None else ""
        console.print(
            f"Pending plan: {waiting.plan} ({waiting.reason}{until}): {waiting.cost_per_hour} an hour{before}, "
            f"{waiting.throughput} requests/s",
            markup=False,
        )
        print_changes(session.key, waiting.changes, console)
    if status.history:
        earlier = (name if name in plans else f"{name} (deleted)" for name in status.history)
        console.print(f"Earlier plans, newest first: {', '.join(earlier)}", markup=False)


def _print_conditions(session: InferenceSession, console: Console) -> None:
    table = Table(title=session.key, title_justify="left")
    for name in ("condition", "status", "reason", "message"):
        table.add_column(name)
    for found in session.status.conditions:
        settled = found.status == ConditionStatus.FALSE and found.reason == "Settled"
        if not settled:
            table.add_row(found.type, found.status, found.reason, found.message)
    console.print(table)
