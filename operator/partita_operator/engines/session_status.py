"""What runs for a session on Ray Serve, in the form that the reconcilers use. Pure."""

from collections.abc import Collection

from partita_operator.engines.app_config import configured_plan, stages_by_plan
from partita_operator.engines.failure_diagnosis import diagnosis, has_other_content
from partita_operator.engines.frontend_client import FrontendAnswer, remarks
from partita_operator.engines.placement import Resources
from partita_operator.engines.serve_state import ServeApplication, ServeState
from partita_operator.ports import PlanServing, ServingStatus, StageReadiness
from partita_runtime.serving.deploy.applications import frontend_name


def serving_status(
    session_key: str,
    state: ServeState,
    answer: FrontendAnswer,
    capacity: Resources,
    *,
    url: str,
    progress: str,
    now: float,
) -> ServingStatus:
    """The status of the session's applications.

    `capacity` is the cluster's total of each resource, `progress` is what the last step of the roll-out said, `now` is
    in Unix seconds.
    """
    frontend = state.applications.get(frontend_name(session_key))
    plans: dict[str, list[StageReadiness]] = {}
    for app in state.of_session(session_key).values():
        message, changed = diagnosis(app, state, capacity, now), has_other_content(app)
        for plan, stages in stages_by_plan(app.config if app.config is not None else {"name": app.name}).items():
            readiness = [StageReadiness(*stage, app.ready, message, content_changed=changed) for stage in stages]
            plans.setdefault(plan, []).extend(readiness)
    messages = [progress]
    if frontend is not None:
        messages.append(diagnosis(frontend, state, capacity, now, "the frontend") or answer.problem)
    if answer.signals:
        messages.append(answer.signals.message)
    return ServingStatus(
        plans=tuple(PlanServing(plan, tuple(stages)) for plan, stages in sorted(plans.items())),
        serving_plan=_serving_plan(answer, frontend, plans),
        frontend_ready=frontend is not None and frontend.ready > 0,
        url=url if frontend is not None else None,
        grpc_address=answer.signals.grpc_address if answer.signals else None,
        http_address=answer.signals.http_address if answer.signals else None,
        message=" ".join(message for message in messages if message),
        remarks=remarks(answer.signals.warnings) if answer.signals else (),
    )


def _serving_plan(answer: FrontendAnswer, frontend: ServeApplication | None, plans: Collection[str]) -> str | None:
    """The plan that the frontend reports; while it does not answer, its configured plan if that is the only one."""
    if answer.signals:
        return answer.signals.plan
    configured = configured_plan(frontend.config) if frontend else None
    return configured if answer.problem and set(plans) == {configured} else None
