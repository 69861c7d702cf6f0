"""All about one session: its plans, past and pending, its conditions, and where its requests go."""

from collections.abc import Mapping
from dataclasses import dataclass

from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan
from partita_api.profile import ProfilingProgress
from partita_api.session.plan_changes import PlanPreview
from partita_operator.console.drawing.plan_figure import PlanDiagram
from partita_operator.console.reading.snapshot import ClusterSnapshot
from partita_operator.console.views.findings import ConditionRow, condition_rows
from partita_operator.console.views.plans import PlanView, changes, diagram_of, plan_view
from partita_operator.console.views.pools import Fact, colours
from partita_operator.console.views.sessions import SessionRow, session_row
from partita_planner.explain.difference import PlanDifference


@dataclass(frozen=True)
class PlanLine:
    """One plan of the history."""

    name: str
    role: str
    """pending, current or earlier."""
    kept: bool
    """Whether it can still be read."""
    created: str
    cost_per_hour: float | None
    throughput: float | None
    differences: int | None
    """How many there are from the plan before it; None if one of them is not kept."""


@dataclass(frozen=True)
class SessionPage:
    """A session with its current plan."""

    row: SessionRow
    complaint: str
    """Why its spec cannot be used; empty if it can."""
    facts: tuple[Fact, ...]
    p50_ms: float | None
    idle_fraction: float | None
    recommendation: str
    """What the autoscaler last recommended."""
    plan: PlanView | None
    diagram: PlanDiagram | None
    preview: PlanPreview | None
    profiling: tuple[ProfilingProgress, ...]
    """Profiles that are being made or could not be made."""
    plans: tuple[PlanLine, ...]
    conditions: tuple[ConditionRow, ...]


@dataclass(frozen=True)
class PlanComparison:
    """What differs between a plan and another one."""

    title: str
    differences: tuple[PlanDifference, ...]


@dataclass(frozen=True)
class PlanPage:
    """One plan of a session."""

    session: SessionRow
    role: str
    plan: PlanView
    comparisons: tuple[PlanComparison, ...]


def session_page(snapshot: ClusterSnapshot, key: str) -> SessionPage | None:
    """The session of this namespace/name; None if it is not known."""
    cluster = snapshot.cluster
    session = cluster.sessions.get(key)
    if session is None:
        return None
    pools, plans = colours(cluster), cluster.plans_of(session)
    current = plans.get(session.status.current_plan.name) if session.status.current_plan is not None else None
    view = plan_view(session, current, pools) if current is not None else None
    signals = session.status.signals
    complaint = cluster.unreadable.get(key, "")
    diagram = view.diagram if view is not None else None if complaint else diagram_of(session.spec, None, pools)
    return SessionPage(
        row=session_row(session),
        complaint=complaint,
        facts=tuple(_facts(session)),
        p50_ms=float(signals.p50_ms) if signals is not None and float(signals.offered_rate) > 0 else None,
        idle_fraction=float(signals.idle_fraction) if signals is not None else None,
        recommendation=signals.recommendation if signals is not None else "",
        plan=view,
        diagram=diagram,
        preview=session.status.preview,
        profiling=session.status.profiling,
        plans=_plan_lines(session, plans),
        conditions=condition_rows(session.status.conditions, session.metadata.generation),
    )


def plan_page(snapshot: ClusterSnapshot, key: str, name: str) -> PlanPage | None:
    """A plan of the session with the differences from the plan before it, and from the current one."""
    cluster = snapshot.cluster
    session = cluster.sessions.get(key)
    plans = cluster.plans_of(session) if session is not None else {}
    plan = plans.get(name)
    if session is None or plan is None:
        return None
    roles = _roles(session)
    others = {_before(name, roles): "the plan before it"}
    if session.status.current_plan is not None:
        others.setdefault(session.status.current_plan.name, "the current plan")
    comparisons = tuple(
        PlanComparison(f"Differences from {other}, {what}", changes(plans[other], plan))
        for other, what in others.items()
        if other in plans and other != name
    )
    view = plan_view(session, plan, colours(cluster))
    return PlanPage(session_row(session), roles.get(name, "not in the history"), view, comparisons)


def _roles(session: InferenceSession) -> Mapping[str, str]:
    """The session's plans with their roles, newest first."""
    status = session.status
    roles: dict[str, str] = {}
    if status.pending_plan:
        roles[status.pending_plan] = "pending"
    if status.current_plan is not None:
        roles[status.current_plan.name] = "current"
    return roles | {name: "earlier" for name in status.history if name not in roles}


def _before(name: str, roles: Mapping[str, str]) -> str:
    """The plan before this one; empty if there is none."""
    names = list(roles)
    return names[names.index(name) + 1] if name in roles and name != names[-1] else ""


def _plan_lines(session: InferenceSession, plans: Mapping[str, PipelinePlan]) -> tuple[PlanLine, ...]:
    roles = _roles(session)
    lines = []
    for name, role in roles.items():
        plan, before = plans.get(name), plans.get(_before(name, roles))
        lines.append(
            PlanLine(
                name=name,
                role=role,
                kept=plan is not None,
                created=plan.metadata.creation_timestamp if plan is not None else "",
                cost_per_hour=float(plan.spec.cost.allocated_per_hour) if plan is not None else None,
                throughput=float(plan.spec.throughput) if plan is not None else None,
                differences=len(changes(before, plan)) if plan is not None and before is not None else None,
            )
        )
    return tuple(lines)


def _facts(session: InferenceSession) -> list[Fact]:
    spec, status = session.spec, session.status
    facts = [
        Fact("objective", str(spec.objective.type)),
        Fact("pools", ", ".join(spec.pools) if spec.pools else str(spec.pool_selector) or "all"),
        Fact("priority", str(spec.priority)),
        Fact("rate to plan for", f"{spec.rate.requests_per_second} requests/s, {spec.rate.source}"),
    ]
    facts += [Fact("engine", str(status.engine))] if status.engine is not None else []
    addresses = (
        ("URL", status.url),
        ("URL in the cluster", status.cluster_url),
        ("HTTP", status.http_address),
        ("gRPC", status.grpc_address),
    )
    facts += [Fact(name, address) for name, address in addresses if address]
    facts += [Fact("versions", status.version_shares)] if status.version_shares else []
    return facts
