"""The content of mig-manager's ConfigMap: the configurations of all pools, and those that nodes still use.

mig-manager applies a node's configuration again after a restart of the node. So a configuration stays while a node uses
it.
"""

import re
from collections.abc import Mapping
from typing import Final

from partita_operator.reconcile.pool.gpu_labels import CUT_AS, DRAINING, MIG_CONFIG
from partita_operator.reconcile.world import PoolWorld
from partita_planner.mig.errors import MigError
from partita_planner.mig.mig_parted import Entries
from partita_planner.mig.partitioning import DesiredPartitioning, desired_partitioning, named
from partita_planner.mig.products import ProductTable

UNCUT: Final[Mapping[str, Entries]] = {"all-disabled": [{"devices": "all", "mig-enabled": False}]}
"""The label value that the GPU Operator sets initially."""
_DIGEST: Final = re.compile(r"[0-9a-f]{8}")


def to_publish(world: PoolWorld, products: ProductTable) -> dict[str, Entries]:
    """The configurations of every pool, and all existing ones except those that this pool no longer needs."""
    desired: dict[str, Entries] = dict(UNCUT)
    for pool in world.cluster.pools.values():
        if pool.spec.mig is None:
            continue
        try:
            asked = desired_partitioning(pool.metadata.name, pool.spec.mig, products)
        except MigError:
            continue  # the condition of that pool reports it
        desired |= {configuration.name: configuration.entries for configuration in asked.configurations}
    present = world.partitioner.published or {}
    in_use = {node.labels.get(label) for node in world.nodes for label in (MIG_CONFIG, CUT_AS, DRAINING)}
    prefix = named(world.pool.metadata.name, "").rpartition("-")[0] + "-"
    kept = {name: entries for name, entries in present.items() if name in in_use or not _is_of(prefix, name)}
    return {**kept, **desired}


def knows(published: Mapping[str, Entries] | None, desired: DesiredPartitioning) -> bool:
    """Whether all configurations that a pool requests are published."""
    return published is not None and all(published.get(c.name) == c.entries for c in desired.configurations)


def _is_of(prefix: str, name: str) -> bool:
    return name.startswith(prefix) and _DIGEST.fullmatch(name.removeprefix(prefix)) is not None
