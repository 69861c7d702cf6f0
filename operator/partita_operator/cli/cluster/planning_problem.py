"""The planning problem that the operator would solve now for a session of a cluster."""

from collections.abc import Sequence

import click

from partita_api.inferencesession import InferenceSession, RateSource
from partita_api.module_graph import with_measured, with_size_classes
from partita_api.profile import Profile
from partita_operator.reconcile.capacity.accounting import Availability
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.session.validation import find_problem
from partita_planner.problem import PlanningProblem
from partita_planner.several_sessions.offline import offline_problem


def problem_of(
    session: InferenceSession, cluster: Cluster, profiles: Sequence[Profile], rate: int | None
) -> PlanningProblem:
    """The session's planning problem with the accelerators that are free for it now.

    The rate is `rate`, else the measured or declared one.

    Raises ClickException if the session cannot be planned: its spec is wrong, or it has no profiles yet.
    """
    if (problem := find_problem(session, cluster)) is not None:
        raise click.ClickException(f"{session.key} cannot be planned: {problem.message}")
    may_use = Availability(session, cluster)
    pools = [cluster.pools[name] for name in may_use.free]
    declared = offline_problem(pools, session, profiles, may_use.free, may_use.present)
    profiled = {module for module, _ in declared.profiles}
    models = [module.name for module in with_size_classes(session.spec).modules if module.model is not None]
    if missing := [name for name in models if name not in profiled]:
        raise click.ClickException(
            f"{session.key} cannot be planned yet: no profile of {', '.join(missing)} is in its namespace; see its "
            "condition Profiled."
        )
    status, observes = session.status, session.spec.rate.source is RateSource.OBSERVED
    measured = status.planned_rate if observes else None
    active = cluster.plans_of(session).get(status.current_plan.name) if status.current_plan else None
    return PlanningProblem(
        session=declared.session,
        spec=with_measured(declared.spec, status.measured if observes else None),
        rate=float(measured) if measured is not None and rate is None else declared.rate,
        pools=declared.pools,
        profiles=declared.profiles,
        current_plan=active.spec if active is not None else None,
    )
