"""The node partitioning that `spec.mig` of a pool requests, as mig-parted configurations.

A configuration is named after its content: mig-manager acts on a node only when the name on its label changes.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from partita_api.digests import digest
from partita_api.pool.mig import MigNodes, MigPartitioning
from partita_planner.mig.errors import BadConfigurationError
from partita_planner.mig.layouts import maximal_layouts
from partita_planner.mig.mig_parted import Entries
from partita_planner.mig.products import Product, ProductTable

_MOST_NAME_CHARACTERS: Final = 54
"""The longest pool name in a configuration's name, a label value: nine more characters make 63."""


@dataclass(frozen=True)
class NodePartitioning:
    """How the GPUs of some nodes are cut."""

    name: str
    nodes: int
    entries: Entries
    resources: Mapping[str, int]
    """Amount of each extended resource on such a node, under MIG strategy `mixed`."""


@dataclass(frozen=True)
class DesiredPartitioning:
    """The partitioning that `spec.mig` of one pool requests."""

    pool: str
    configurations: tuple[NodePartitioning, ...]

    @cached_property
    def change(self) -> str:
        """The name of this partitioning, for approvals."""
        return named(self.pool, [(c.name, c.nodes) for c in self.configurations])

    @property
    def nodes(self) -> int:
        """Nodes that are cut."""
        return sum(configuration.nodes for configuration in self.configurations)


def desired_partitioning(pool: str, spec: MigPartitioning, products: ProductTable) -> DesiredPartitioning:
    """The configurations that a pool requests. Raises MigError if slices do not fit on one GPU together."""
    product = products.product(spec.product)
    made: dict[str, NodePartitioning] = {}
    for layout in spec.layouts:
        _check_fit(layout, product)
        configuration = _configuration(pool, spec, layout, product)
        if configuration.name in made:
            raise BadConfigurationError("mig.layouts has the same layout twice: keep one, with the sum of their nodes")
        made[configuration.name] = configuration
    return DesiredPartitioning(pool, tuple(made.values()))


def named(pool: str, content: object) -> str:
    """A label value that names a pool and some content."""
    return f"{pool[:_MOST_NAME_CHARACTERS].rstrip('-.')}-{digest(content, 8)}"


def _check_fit(layout: MigNodes, product: Product) -> None:
    possible = [maximal.counts for maximal in maximal_layouts(product)]
    for gpus in layout.gpus:
        for name in gpus.slices:
            product.slice(name)
        if not any(all(there.get(name, 0) >= n for name, n in gpus.slices.items()) for there in possible):
            requested = " + ".join(f"{count} x {name}" for name, count in gpus.slices.items())
            raise BadConfigurationError(
                f"{requested} do not fit on one {product.name}: `partita mig` finds layouts that fit"
            )


def _configuration(pool: str, spec: MigPartitioning, layout: MigNodes, product: Product) -> NodePartitioning:
    entries: Entries = []
    resources: Counter[str] = Counter()
    first = 0
    for gpus in layout.gpus:
        devices = list(range(first, first + gpus.count))
        entries.append({"devices": devices, "mig-enabled": True, "mig-devices": dict(sorted(gpus.slices.items()))})
        resources.update({product.slice(name).resource_name: n * gpus.count for name, n in gpus.slices.items()})
        first += gpus.count
    if first < spec.gpus_per_node:
        entries.append({"devices": list(range(first, spec.gpus_per_node)), "mig-enabled": False})
    return NodePartitioning(named(pool, entries), layout.nodes, entries, dict(sorted(resources.items())))
