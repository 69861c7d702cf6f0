"""`partita approve|pause|resume|rollback`: sets the annotations by which people control a session."""

from collections.abc import Mapping
from typing import Any

import click

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.meta import APPROVED_ANNOTATION, PAUSED_ANNOTATION, ROLLBACK_ANNOTATION
from partita_api.pipelineplan import PipelinePlan
from partita_api.session.plan_changes import PlannedChange
from partita_operator.cli.cluster.api_server import ApiServer
from partita_operator.cli.cluster.name_completion import complete_session_or_pool, session_argument
from partita_operator.cli.cluster.options import (
    ClusterPlace,
    cluster_options,
    pool_name,
    session_name,
)
from partita_operator.cli.output import OutputFormat, emit, output_option, report
from partita_operator.cli.plan_report import print_changes
from partita_operator.reconcile.session.annotations import rollback_annotation


@click.command()
@click.argument("what", metavar="SESSION|gpool/POOL", shell_complete=complete_session_or_pool)
@click.option("--plan", "plan_name", help="Approve only if this is the pending plan or change.")
@cluster_options
@output_option
def approve(what: str, plan_name: str | None, place: ClusterPlace, output: OutputFormat) -> None:
    """Approve the pending plan of SESSION, or the pending change of a pool's MIG slices, and show what it changes.

    The approval holds for this plan only. It has no effect if the inputs change before the operator sees it.
    """
    server = ApiServer(place)
    if (pool := pool_name(what)) is not None:
        _approve_pool(server.pool(pool), plan_name, server, output)
        return
    found = server.session(session_name(what))
    waiting = _waiting_plan(found, server.plans(found))
    if waiting is None:
        raise click.ClickException(f"No plan of {found.key} waits for approval.")
    if plan_name is not None and plan_name != waiting:
        raise click.ClickException(f"Plan {plan_name} does not wait for approval; the pending plan is {waiting}.")
    preview = found.status.preview
    changes = preview.changes if preview is not None and preview.plan == waiting else None
    server.annotate(found, {APPROVED_ANNOTATION: waiting})
    emit(
        {"session": found.key, "approved": waiting, "changes": [_plain(change) for change in changes or ()]},
        output,
        lambda console: print_changes(found.key, changes, console) if changes is not None else None,
    )
    report(f"{found.key}: plan {waiting} is approved")


@click.command()
@session_argument
@click.option("--why", default="by hand", show_default=True, help="Reason, shown in the session's condition Held.")
@cluster_options
@output_option
def pause(session: str, why: str, place: ClusterPlace, output: OutputFormat) -> None:
    """Keep the plan and the replicas of SESSION as they are."""
    if not why.strip() or why.strip().lower() == "false":
        raise click.BadParameter("give a reason other than `false`.", param_hint="--why")
    server = ApiServer(place)
    found = server.session(session)
    server.annotate(found, {PAUSED_ANNOTATION: why})
    emit({"session": found.key, "paused": True, "reason": why}, output)
    report(f"{found.key} is paused; to resume: partita resume isess/{session} {place.flags(server.namespace)}")


@click.command()
@session_argument
@cluster_options
@output_option
def resume(session: str, place: ClusterPlace, output: OutputFormat) -> None:
    """Plan and scale SESSION again."""
    server = ApiServer(place)
    found = server.session(session)
    was_paused = PAUSED_ANNOTATION in found.metadata.annotations
    if was_paused:
        server.annotate(found, {PAUSED_ANNOTATION: None})
    emit({"session": found.key, "paused": False, "wasPaused": was_paused}, output)
    report(f"{found.key} is resumed" if was_paused else f"{found.key} is not paused")


@click.command()
@session_argument
@click.option(
    "--to", "target", help="Plan to return to, or the digest at the end of its name. Default: the previous plan."
)
@click.option("--undo", is_flag=True, help="End the rollback and return to the plan of the present spec.")
@cluster_options
@output_option
def rollback(session: str, target: str | None, undo: bool, place: ClusterPlace, output: OutputFormat) -> None:
    """Return to an earlier plan of SESSION until its spec changes or the rollback is undone."""
    if undo and target:
        raise click.UsageError("--undo and --to exclude each other.")
    server = ApiServer(place)
    found = server.session(session)
    if undo:
        server.annotate(found, {ROLLBACK_ANNOTATION: None})
        emit({"session": found.key, "plan": None}, output)
        report(f"{found.key} returns to the plan of its spec")
        return
    chosen = _earlier_plan(found, server.plans(found), target)
    server.annotate(found, {ROLLBACK_ANNOTATION: rollback_annotation(chosen, found.metadata.generation)})
    emit({"session": found.key, "plan": chosen}, output)
    undo_command = f"partita rollback isess/{session} --undo {place.flags(server.namespace)}"
    report(f"{found.key} returns to plan {chosen}; to undo it: {undo_command}")


def _approve_pool(pool: GPUPool, change: str | None, server: ApiServer, output: OutputFormat) -> None:
    """Approve the pending change of the pool's slices. Raises ClickException if there is none."""
    name, cut = pool.metadata.name, pool.status.partitioning
    if cut is None or not cut.change or cut.approved or pool.status.observed_generation < pool.metadata.generation:
        raise click.ClickException(f"No change of the slices of GPUPool {name} waits for approval.")
    if change is not None and change != cut.change:
        raise click.ClickException(f"Change {change} does not wait for approval; the pending change is {cut.change}.")
    report(f"nodes to drain and partition: {', '.join(cut.waiting_nodes) or 'none now'}")
    server.annotate(pool, {APPROVED_ANNOTATION: cut.change})
    nodes = list(cut.waiting_nodes)
    emit({"pool": name, "approved": cut.change, "waitingNodes": nodes}, output)
    report(f"GPUPool {name}: change {cut.change} is approved")


def _plain(change: PlannedChange) -> dict[str, Any]:
    """The change as plain JSON data."""
    return change.model_dump(mode="json", by_alias=True, exclude_none=True)


def _waiting_plan(session: InferenceSession, plans: Mapping[str, PipelinePlan]) -> str | None:
    pending = plans.get(session.status.pending_plan or "")
    return pending.metadata.name if pending is not None and not pending.spec.approved else None


def _earlier_plan(session: InferenceSession, plans: Mapping[str, PipelinePlan], target: str | None) -> str:
    """The name of the plan to return to. Raises ClickException if there is none."""
    active = session.status.current_plan.name if session.status.current_plan else None
    earlier = [name for name in session.status.history if name in plans and name != active]
    if target is None and earlier:
        return earlier[0]
    if target is not None and (named := [n for n in plans if n == target or n.endswith(f"-{target}")]):
        return named[0]
    what = f"plan {target}" if target is not None else "earlier plan"
    raise click.ClickException(
        f"{session.key} has no {what} to return to. The current plan is {active or 'none'}; earlier plans: "
        f"{', '.join(earlier) or 'none'}."
    )
