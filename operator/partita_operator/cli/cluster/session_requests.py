"""`partita approve|pause|resume|rollback`: what a person asks of a session, as annotations that the operator obeys."""

from collections.abc import Mapping

import click

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.meta import APPROVED_ANNOTATION, PAUSED_ANNOTATION, ROLLBACK_ANNOTATION
from partita_api.pipelineplan import PipelinePlan
from partita_operator.cli.cluster.api_server import ApiServer
from partita_operator.cli.cluster.options import (
    ClusterPlace,
    cluster_options,
    pool_name,
    session_argument,
    session_name,
)
from partita_operator.cli.offline.plan_report import print_changes
from partita_operator.cli.output import console, report
from partita_operator.reconcile.session.annotations import rollback_annotation


@click.command()
@click.argument("what", metavar="SESSION|gpool/POOL")
@click.option("--plan", "plan_name", help="Approve only if this is the plan, or the change, that waits.")
@cluster_options
def approve(what: str, plan_name: str | None, place: ClusterPlace) -> None:
    """Approve the plan of SESSION that waits, or the change of a pool's MIG slices, and show what it changes.

    The approval is of this plan alone: if the inputs change before the operator sees it, it does nothing.
    """
    server = ApiServer(place)
    if (pool := pool_name(what)) is not None:
        _approve_pool(server.pool(pool), plan_name, server)
        return
    found = server.session(session_name(what))
    waiting = _waiting_plan(found, server.plans(found))
    if waiting is None:
        raise click.ClickException(f"No plan of {found.key} waits for approval.")
    if plan_name is not None and plan_name != waiting:
        raise click.ClickException(f"Plan {plan_name} does not wait; the plan that does is {waiting}.")
    if found.status.preview is not None and found.status.preview.plan == waiting:
        print_changes(found.key, found.status.preview.changes, console)
    server.annotate(found, {APPROVED_ANNOTATION: waiting})
    report(f"{found.key}: plan {waiting} is approved")


@click.command()
@session_argument
@click.option("--why", default="by hand", show_default=True, help="Shown in the session's condition Held.")
@cluster_options
def pause(session: str, why: str, place: ClusterPlace) -> None:
    """Keep what SESSION serves as it is: no other plan, no scaling."""
    if not why.strip() or why.strip().lower() == "false":
        raise click.BadParameter("say why, in any words but `false`.", param_hint="--why")
    server = ApiServer(place)
    found = server.session(session)
    server.annotate(found, {PAUSED_ANNOTATION: why})
    report(f"{found.key} is paused; to go on: partita resume isess/{session} -n {server.namespace}")


@click.command()
@session_argument
@cluster_options
def resume(session: str, place: ClusterPlace) -> None:
    """Plan and scale SESSION again."""
    server = ApiServer(place)
    found = server.session(session)
    if PAUSED_ANNOTATION not in found.metadata.annotations:
        report(f"{found.key} is not paused")
        return
    server.annotate(found, {PAUSED_ANNOTATION: None})
    report(f"{found.key} goes on")


@click.command()
@session_argument
@click.option(
    "--to", "target", help="Plan to go back to, or the digest at the end of its name. Default: the one before."
)
@click.option("--undo", is_flag=True, help="End the rollback: the plan of the present spec comes back.")
@cluster_options
def rollback(session: str, target: str | None, undo: bool, place: ClusterPlace) -> None:
    """Go back to an earlier plan of SESSION, until its spec changes or the rollback is undone."""
    if undo and target:
        raise click.UsageError("--undo goes without --to.")
    server = ApiServer(place)
    found = server.session(session)
    if undo:
        server.annotate(found, {ROLLBACK_ANNOTATION: None})
        report(f"{found.key} goes on with the plan of its spec")
        return
    chosen = _earlier_plan(found, server.plans(found), target)
    server.annotate(found, {ROLLBACK_ANNOTATION: rollback_annotation(chosen, found.metadata.generation)})
    report(f"{found.key} goes back to plan {chosen}; to undo it: partita rollback isess/{session} --undo")


def _approve_pool(pool: GPUPool, change: str | None, server: ApiServer) -> None:
    """Approve the change of the pool's slices that waits. Raises ClickException if none does."""
    name, cut = pool.metadata.name, pool.status.partitioning
    if cut is None or not cut.change or cut.approved or pool.status.observed_generation < pool.metadata.generation:
        raise click.ClickException(f"No change of the slices of GPUPool {name} waits for approval.")
    if change is not None and change != cut.change:
        raise click.ClickException(f"Change {change} does not wait; the one that does is {cut.change}.")
    report(f"nodes that are drained and cut: {', '.join(cut.waiting_nodes) or 'none now'}")
    server.annotate(pool, {APPROVED_ANNOTATION: cut.change})
    report(f"GPUPool {name}: change {cut.change} is approved")


def _waiting_plan(session: InferenceSession, plans: Mapping[str, PipelinePlan]) -> str | None:
    pending = plans.get(session.status.pending_plan or "")
    return pending.metadata.name if pending is not None and not pending.spec.approved else None


def _earlier_plan(session: InferenceSession, plans: Mapping[str, PipelinePlan], target: str | None) -> str:
    """The name of the plan to go back to. Raises ClickException if there is none."""
    active = session.status.current_plan.name if session.status.current_plan else None
    earlier = [name for name in session.status.history if name in plans and name != active]
    if target is None and earlier:
        return earlier[0]
    if target is not None and (named := [n for n in plans if n == target or n.endswith(f"-{target}")]):
        return named[0]
    what = f"plan {target}" if target is not None else "earlier plan"
    raise click.ClickException(
        f"{session.key} has no {what} to go back to; in force is {active or 'none'}, kept are: "
        f"{', '.join(earlier) or 'none'}."
    )
