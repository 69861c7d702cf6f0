"""What keeps an application from running, in words for people: what is so, and what to do."""

from typing import Final

from partita_operator.engines.placement import Resources, missing
from partita_operator.engines.serve_state import DELETING, DEPLOY_FAILED, Application, ServeState

UNPLACED_SECONDS: Final = 15.0
"""A replica that has found no node for this long is worth a word."""
_MOST_CHARACTERS: Final = 600


def diagnosis(app: Application, state: ServeState, capacity: Resources, now: float) -> str:
    """Why the application does not run as it should; empty if it does or is still starting.

    `capacity` is the cluster's total of each resource, `now` is in Unix seconds.
    """
    if app.status == DELETING:
        return "being removed"
    if app.status == DEPLOY_FAILED:
        return (
            f"Ray Serve could not deploy it: {_last_words(app.message)}. See whether the cluster has Partita and the "
            "model's package (PARTITA_RUNTIME_ENV, or the image of its nodes); it is tried again every two minutes."
        )
    for deployment in app.deployments:
        late = [r for r in deployment.replicas if not r.placed and now - r.started > UNPLACED_SECONDS]
        if late:
            needs = ", ".join(f"{units:g} {name}" for name, units in sorted(deployment.resources.items()))
            return (
                f"{len(late)} of {deployment.target} replicas find no node with {needs} free"
                f"{_shortage(deployment.resources, state, capacity)}. Add nodes with it, or free some."
            )
    if app.leaving is not None:  # it says that it is not well, so that Serve starts another one in its place
        return ""
    if app.status == "UNHEALTHY" or (app.ready == 0 and app.message):
        words = app.message or " ".join(deployment.message for deployment in app.deployments)
        return f"its replicas fail: {_last_words(words)}. See the replicas' logs in the Ray dashboard."
    failing = [deployment.message for deployment in app.deployments if deployment.message and not deployment.ready]
    return _last_words(failing[0]) if failing else ""


def _shortage(each: Resources, state: ServeState, capacity: Resources) -> str:
    """Which resource is short: there is none, or all of it is in use."""
    absent = [name for name in each if not capacity.get(name)]
    if absent:
        return f"; the Ray cluster has no {' and no '.join(sorted(absent))} at all"
    used: dict[str, float] = {}
    for app in state.applications.values():
        for deployment in app.deployments:
            placed = sum(replica.placed for replica in deployment.replicas)
            for name, units in deployment.resources.items():
                used[name] = used.get(name, 0.0) + units * placed
    free = {name: units - used.get(name, 0.0) for name, units in capacity.items()}
    short = [f"{used.get(name, 0.0):g} of {capacity[name]:g} {name} are in use" for name in sorted(missing(free, each))]
    return f"; {' and '.join(short)} by Ray Serve" if short else ""


def _last_words(message: str) -> str:
    """The end of a message or traceback, where the cause is, on one line."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    words = lines[-1] if lines else "it gives no reason"
    return words[-_MOST_CHARACTERS:].rstrip(".")
