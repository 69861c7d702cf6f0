"""Why an application does not run, in sentences for people: the cause, and what to do."""

from typing import Final

from partita_operator.engines.placement import Resources, missing, subtracted
from partita_operator.engines.serve_state import DELETING, DEPLOY_FAILED, ServeApplication, ServeState
from partita_runtime.models.errors import CONTENT_CHANGED_MARK

UNPLACED_SECONDS: Final = 15.0
"""A replica that has found no node for this long is reported."""
_MOST_CHARACTERS: Final = 600


def diagnosis(
    app: ServeApplication, state: ServeState, capacity: Resources, now: float, what: str = "the stage"
) -> str:
    """Why the application does not run as it should; empty if it does or is still starting.

    `capacity` is the cluster's total of each resource, `now` is in Unix seconds, `what` the application is for people.
    """
    if app.status == DELETING:
        return f"Ray Serve removes {what}."
    if app.status == DEPLOY_FAILED:
        return (
            f"Ray Serve could not deploy {what}: {_last_line(app.message)}. Check that ray.runtimeEnv of the chart, or "
            "the image of the Ray nodes, has Partita and the model's package. Partita tries again every two minutes."
        )
    for deployment in app.deployments:
        late = [r for r in deployment.replicas if not r.placed and now - r.started > UNPLACED_SECONDS]
        if late:
            needs = ", ".join(f"{units:g} {name}" for name, units in sorted(deployment.resources.items()))
            return (
                f"{len(late)} of {deployment.target} replicas of {what} find no node with {needs} free"
                f"{_shortage(deployment.resources, state, capacity)}. Add nodes with it, or free some."
            )
    if app.leaving is not None:  # the replica reports itself unhealthy, so that Serve starts another one
        return ""
    if app.status == "UNHEALTHY" or (app.ready == 0 and app.message):
        words = app.message or " ".join(deployment.message for deployment in app.deployments)
        return f"The replicas of {what} fail: {_last_line(words)}. See their logs in the Ray dashboard."
    failing = [deployment.message for deployment in app.deployments if deployment.message and not deployment.ready]
    return f"{_last_line(failing[0])}." if failing else ""


def has_other_content(app: ServeApplication) -> bool:
    """Whether a replica says that its model has other content than its profile names."""
    messages = (app.message, *(deployment.message for deployment in app.deployments))
    return any(CONTENT_CHANGED_MARK in message for message in messages)


def _shortage(each: Resources, state: ServeState, capacity: Resources) -> str:
    """Which resource is missing: the cluster does not have it, or all of it is in use."""
    absent = [name for name in each if not capacity.get(name)]
    if absent:
        return f"; the Ray cluster has no {' and no '.join(sorted(absent))}"
    used = state.placed_resources()
    short = sorted(missing(subtracted(capacity, used), each))
    in_use = [f"{used.get(name, 0.0):g} of {capacity[name]:g} {name} are in use" for name in short]
    return f"; {' and '.join(in_use)} by Ray Serve" if in_use else ""


def _last_line(message: str) -> str:
    """The last line of a message or traceback, which names the cause."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    words = lines[-1] if lines else "it gives no reason"
    return words[-_MOST_CHARACTERS:].rstrip(".")
