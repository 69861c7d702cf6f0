"""Accelerators of nodes that take no new pods: which of them still count.

Those of a departing node do not count: their work moves before the node goes. Pods on a cordoned node serve until they
are evicted, so its accelerators count as far as plans use them. This share never grows while the node is cordoned, and
it depends only on plans and nodes, so that it does not change at rest.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from partita_api.pool.unschedulable import UnschedulableStatus
from partita_operator.reconcile.world import Node

_MOST_NAMES: Final = 256


def unschedulable(
    before: UnschedulableStatus | None, nodes: Iterable[Node], units: Mapping[str, int], claimed: int
) -> UnschedulableStatus | None:
    """What of the accelerators (`units`, by node) is on nodes that take no new pods; None if there is no such node.

    Sessions use `claimed` accelerators. `before` is the last result.
    """
    affected = [node for node in nodes if node.unschedulable and units.get(node.name)]
    if not affected:
        return None
    departing = {node.name: units[node.name] for node in affected if node.departure}
    cordoned = {node.name: units[node.name] for node in affected if not node.departure}
    schedulable = sum(units.values()) - sum(departing.values()) - sum(cordoned.values())
    before = before or UnschedulableStatus()
    most_in_use = before.cordoned_in_use + max(0, sum(cordoned.values()) - before.cordoned)
    return UnschedulableStatus(
        departing=sum(departing.values()),
        departing_nodes=tuple(sorted(departing))[:_MOST_NAMES],
        cordoned=sum(cordoned.values()),
        cordoned_nodes=tuple(sorted(cordoned))[:_MOST_NAMES],
        cordoned_in_use=max(0, min(claimed - schedulable, sum(cordoned.values()), most_in_use)),
    )


def not_counted(found: UnschedulableStatus | None, nodes: Iterable[Node]) -> str:
    """What does not count and why, without a full stop; empty if all counts."""
    if found is None or not found.uncounted:
        return ""
    notices = {node.name: node.departure for node in nodes if node.name in found.departing_nodes}
    first = next((f" (node {name} has {why})" for name, why in sorted(notices.items())), "")
    parts = [f"{found.departing} on departing nodes{first}"] if found.departing else []
    if idle := found.cordoned - found.cordoned_in_use:
        parts.append(f"{idle} on cordoned nodes")
    return f"Not counted: {' and '.join(parts)}"
