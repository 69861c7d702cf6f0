"""Which replica of a stage should be started anew so that the stage is spread over the nodes: pure.

Serve spreads replicas that it starts at the same time, and never moves one that runs; so once a node was lost, all
replicas may be on the others, even long after it is back. Here one replica after the other is chosen to make place:
only where everything of the session is up and nothing else changes, only while there is room on a node with at least
two replicas of the stage fewer, and, where that did not help, after ever longer pauses, and then no more.

Where the new replica starts is Ray's decision: it goes round the nodes that have room, so that a few tries reach each.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from partita_api.digests import digest
from partita_operator.engines.placement import RayNode, Resources, fits
from partita_operator.engines.serve_state import (
    RUNNING,
    AppConfig,
    Application,
    ServeState,
    own_configs,
)
from partita_runtime.serving.deploy.applications import parse_application
from partita_runtime.serving.deploy.relocation import STAND_IN_SECONDS, Relocation

SETTLED_SECONDS: Final = 30.0
"""How long replicas and nodes must be there before anything is moved because of them."""
PAUSE_SECONDS: Final = 60.0
"""How long the first replica that went in vain is left alone; doubled with each that follows."""
MOST_IN_VAIN: Final = 5
"""After so many nothing more is tried until there are other nodes, or another number of replicas."""

CANNOT_SPREAD: Final = (
    "The replicas of a stage are unevenly spread over the nodes, and cannot be told to make place, as their version of "
    "Partita is older than the operator's: bring the Ray cluster's image, or its Python environment, to this version."
)


def with_relocations(applications: Sequence[AppConfig], state: ServeState) -> tuple[AppConfig, ...]:
    """The applications with what was last done to spread them, which a rollout says nothing of."""
    return tuple(
        _told(config, app.relocation, app.leaving is not None)
        if (app := state.applications.get(config["name"])) and app.relocation
        else config
        for config in applications
    )


def spread_if_able(
    applications: Sequence[AppConfig],
    state: ServeState,
    session_key: str,
    nodes: Sequence[RayNode],
    now: float,
    able: bool,
) -> tuple[tuple[AppConfig, ...], str]:
    """As `spread`, and what keeps it from being done, if the replicas are not `able` to make place when they are told.

    Serve gives a replica up that cannot take what it is told.
    """
    changed = spread(applications, state, session_key, nodes, now)
    if able or changed == tuple(applications):
        return changed, ""
    return tuple(applications), CANNOT_SPREAD


def spread(
    applications: Sequence[AppConfig], state: ServeState, session_key: str, nodes: Sequence[RayNode], now: float
) -> tuple[AppConfig, ...]:
    """The applications of a session of which all is rolled out, one replica of a stage perhaps told to go.

    `now` is in Unix seconds. At most one replica of all sessions on the cluster goes at a time.
    """
    is_quiet = (
        {app["name"]: app for app in applications} == own_configs(state, session_key)
        and all(_is_settled(app, now) for app in state.of_session(session_key).values())
        and not any(app.leaving for app in state.applications.values())
    )
    if not is_quiet:
        return tuple(applications)
    settled = [node for node in nodes if now - node.started >= SETTLED_SECONDS]
    free = _free(settled, state)
    for at, config in enumerate(applications):
        parsed = parse_application(config["name"])
        if parsed is None or parsed.stage is None:
            continue
        if found := relocation(state.applications[config["name"]], settled, free, now):
            return (*applications[:at], _told(config, found, True), *applications[at + 1 :])
    return tuple(applications)


def relocation(
    app: Application, nodes: Iterable[RayNode], free: Mapping[str, Resources], now: float
) -> Relocation | None:
    """The replica of a stage that should make place, if any; `free` is by node."""
    (deployment,) = app.deployments
    each = deployment.resources
    counts = Counter({node.id: 0 for node in nodes if fits(node.total, each)})
    for replica in deployment.replicas:
        if replica.node is None or replica.node not in counts:  # its node is being lost, or has just come
            return None
        counts[replica.node] += 1
    roomy = [node for node in counts if fits(free[node], each)]
    if not roomy:
        return None
    emptiest = min(roomy, key=lambda node: (counts[node], node))
    fullest = max(counts, key=lambda node: (counts[node], node))
    if counts[fullest] - counts[emptiest] < 2:
        return None
    unevenness = sum(count**2 for count in counts.values())
    among = digest([sorted(counts), deployment.target])
    in_vain = _in_vain(app.relocation, unevenness, among)
    if in_vain and (in_vain >= MOST_IN_VAIN or not _paused(app.relocation, in_vain, now)):
        return None
    newest = max((r for r in deployment.replicas if r.node == fullest), key=lambda r: (r.started, r.id))
    return Relocation(
        replica=newest.id,
        others=deployment.target,
        since=int(now),
        unevenness=unevenness,
        in_vain=in_vain,
        among=among,
    )


def _in_vain(last: Relocation | None, unevenness: int, among: str) -> int:
    """How many replicas went before, one after the other, on these nodes and without any effect."""
    if last is None or last.among != among or unevenness < last.unevenness:
        return 0
    return last.in_vain + 1


def _paused(last: Relocation | None, in_vain: int, now: float) -> bool:
    return last is None or now - last.since >= PAUSE_SECONDS * 2 ** (in_vain - 1)


def _is_settled(app: Application, now: float) -> bool:
    """Whether it has run as it should for a while."""
    return (
        app.status == RUNNING
        and bool(app.deployments)
        and all(
            len(deployment.replicas) == deployment.target
            and all(r.state == RUNNING and now - r.started >= SETTLED_SECONDS for r in deployment.replicas)
            for deployment in app.deployments
        )
    )


def _free(nodes: Iterable[RayNode], state: ServeState) -> dict[str, dict[str, float]]:
    """What all applications leave of each node's resources."""
    free = {node.id: dict(node.total) for node in nodes}
    for app in state.applications.values():
        for deployment in app.deployments:
            for replica in deployment.replicas:
                left = free.get(replica.node or "", {})
                for resource, units in deployment.resources.items():
                    left[resource] = left.get(resource, 0.0) - units
    return free


def _told(config: AppConfig, told: Relocation, going: bool) -> AppConfig:
    """A stage's configuration with what its replicas are told, and with time for one that goes."""
    (deployment,) = config["deployments"]
    changed: dict[str, Any] = {**deployment, "user_config": told.model_dump(mode="json", by_alias=True)}
    if going:
        changed["graceful_shutdown_timeout_s"] = deployment["graceful_shutdown_timeout_s"] + STAND_IN_SECONDS
    return {**config, "deployments": [changed]}
