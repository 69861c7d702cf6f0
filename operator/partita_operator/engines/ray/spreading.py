"""Which replica of a stage should move, so that the stage is spread over the nodes. Pure.

Serve spreads replicas that it starts at the same time, and never moves a running one. So after a node was lost, all
replicas can be on the other nodes, even long after it is back. This module chooses one replica after the other that
makes place for a new one. It does so only while the whole session is up and nothing else changes, and only if another
node with room has at least two replicas of the stage fewer. If a relocation did not help, the next one follows after a
longer pause, up to a limit.

Ray decides where the new replica starts: it takes the nodes with room in turn, so a few relocations reach each node.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from partita_api.digests import digest
from partita_operator.engines.app_config import with_relocation
from partita_operator.engines.deployments import Deployments
from partita_operator.engines.placement import RayNode, Resources, fits, subtracted
from partita_operator.engines.serve_state import RUNNING, ServeApplication, ServeState
from partita_runtime.serving.deploy.applications import parse_application
from partita_runtime.serving.deploy.relocation import Relocation

SETTLED_SECONDS: Final = 30.0
"""How long replicas and nodes must have been up before a replica moves."""
PAUSE_SECONDS: Final = 60.0
"""Pause after the first relocation without effect; doubled with each further one."""
MOST_WITHOUT_EFFECT: Final = 5
"""After this many relocations without effect, the next one waits for other nodes or another number of replicas."""

CANNOT_SPREAD: Final = (
    "The replicas of a stage are spread unevenly over the nodes and cannot move, because they run an older version of "
    "Partita than the operator. Update the Ray cluster's image, or its Python environment, to the operator's version."
)


def with_relocations(deployments: Deployments, state: ServeState) -> Deployments:
    """The applications with the relocations that are in the present configuration; a roll-out does not know them."""
    for name, config in deployments.items():
        app = state.applications.get(name)
        if app is not None and app.relocation is not None:
            deployments = deployments.replaced(with_relocation(config, app.relocation, app.leaving is not None))
    return deployments


def spread_if_able(
    deployments: Deployments,
    state: ServeState,
    session_key: str,
    nodes: Sequence[RayNode],
    now: float,
    able: bool,
) -> tuple[Deployments, str]:
    """The result of `spread` if the replicas are `able` to make place; else no change, and the reason if one is due.

    A replica of an older version does not know relocations. Serve would restart it for the changed configuration.
    """
    changed = spread(deployments, state, session_key, nodes, now)
    if able or changed == deployments:
        return changed, ""
    return deployments, CANNOT_SPREAD


def spread(
    deployments: Deployments, state: ServeState, session_key: str, nodes: Sequence[RayNode], now: float
) -> Deployments:
    """The applications of a session that is rolled out, with at most one replica of a stage configured to move.

    `now` is in Unix seconds. At most one replica of all sessions on the cluster moves at a time.
    """
    is_quiet = (
        deployments == state.deployments(session_key)
        and all(_is_settled(app, now) for app in state.of_session(session_key).values())
        and not any(app.leaving for app in state.applications.values())
    )
    if not is_quiet:
        return deployments
    settled = [node for node in nodes if now - node.started >= SETTLED_SECONDS]
    free = {node.id: subtracted(node.total, state.resources_on(node.id)) for node in settled}
    for name, config in deployments.items():
        parsed = parse_application(name)
        if parsed is None or parsed.stage is None:
            continue
        if found := relocation(state.applications[name], settled, free, now):
            return deployments.replaced(with_relocation(config, found, leaving=True))
    return deployments


def relocation(
    app: ServeApplication, nodes: Iterable[RayNode], free: Mapping[str, Resources], now: float
) -> Relocation | None:
    """The relocation that would spread the stage better, if any; `free` is by node."""
    (deployment,) = app.deployments
    each = deployment.resources
    counts = Counter({node.id: 0 for node in nodes if fits(node.total, each)})
    for replica in deployment.replicas:
        if replica.node is None or replica.node not in counts:  # its node is being lost, or has just joined
            return None
        counts[replica.node] += 1
    with_room = [node for node in counts if fits(free[node], each)]
    if not with_room:
        return None
    emptiest = min(with_room, key=lambda node: (counts[node], node))
    fullest = max(counts, key=lambda node: (counts[node], node))
    if counts[fullest] - counts[emptiest] < 2:
        return None
    unevenness = sum(count**2 for count in counts.values())
    among = digest([sorted(counts), deployment.target])
    without_effect = _without_effect(app.relocation, unevenness, among)
    if without_effect and (
        without_effect >= MOST_WITHOUT_EFFECT or not _pause_is_over(app.relocation, without_effect, now)
    ):
        return None
    newest = max((r for r in deployment.replicas if r.node == fullest), key=lambda r: (r.started, r.id))
    return Relocation(
        replica=newest.id,
        others=deployment.target,
        since=int(now),
        unevenness=unevenness,
        without_effect=without_effect,
        among=among,
    )


def _without_effect(last: Relocation | None, unevenness: int, among: str) -> int:
    """How many relocations in a row, among these nodes, did not spread the stage better."""
    if last is None or last.among != among or unevenness < last.unevenness:
        return 0
    return last.without_effect + 1


def _pause_is_over(last: Relocation | None, without_effect: int, now: float) -> bool:
    return last is None or now - last.since >= PAUSE_SECONDS * 2 ** (without_effect - 1)


def _is_settled(app: ServeApplication, now: float) -> bool:
    """Whether it has run with all its replicas for a while."""
    return (
        app.status == RUNNING
        and bool(app.deployments)
        and all(
            len(deployment.replicas) == deployment.target
            and all(r.state == RUNNING and now - r.started >= SETTLED_SECONDS for r in deployment.replicas)
            for deployment in app.deployments
        )
    )
