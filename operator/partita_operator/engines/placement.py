"""How many replicas of two plans fit on a cluster at the same time.

Ray resources are vectors (CPUs, GPUs, pool slots). Each replica of a stage takes the same share of each resource. Ray
chooses the nodes; this module compares totals of the cluster only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from partita_api.pool.ray_resource import shared_resource

_ROUNDING = 1e-6
_OF_NODES: Final = ("CPU", "GPU")
"""Resources of Ray itself; all others are accelerators of pools."""

Resources = Mapping[str, float]
"""Units by the resource's name."""


@dataclass(frozen=True)
class RayNode:
    """A node of the Ray cluster that is alive."""

    id: str
    started: float
    """When it joined (Unix seconds)."""
    total: Resources


@dataclass(frozen=True)
class ReplicaDemand:
    """What the replicas of one stage take."""

    name: str
    replicas: int
    each: Resources
    """What one replica takes."""


@dataclass(frozen=True)
class ReplicaCounts:
    """Replicas of two plans that fit together, by stage; at least one of each stage."""

    old: Mapping[str, int]
    new: Mapping[str, int]


def fit_both(capacity: Resources, old: Sequence[ReplicaDemand], new: Sequence[ReplicaDemand]) -> ReplicaCounts | None:
    """How the old and the new replicas share `capacity`; None if not even one replica of each stage fits.

    The old replicas serve requests, so they give up only what one replica of each new stage needs. The new stages get
    the rest, the stage with the smallest share of its replicas first.
    """
    counts_old = {demand.name: demand.replicas for demand in old}
    counts_new = {demand.name: min(1, demand.replicas) for demand in new}
    while scarce := _overcommitted(capacity, _taken(old, counts_old), _taken(new, counts_new)):
        givers = [demand for demand in old if demand.each.get(scarce, 0.0) > 0 and counts_old[demand.name] > 1]
        if not givers:
            return None
        largest = max(givers, key=lambda demand: counts_old[demand.name] * demand.each[scarce])
        counts_old[largest.name] -= 1
    free = subtracted(subtracted(capacity, _taken(old, counts_old)), _taken(new, counts_new))
    growing = list(new)
    while growing:
        scarcest = min(growing, key=lambda demand: counts_new[demand.name] / max(demand.replicas, 1))
        if counts_new[scarcest.name] < scarcest.replicas and fits(free, scarcest.each):
            counts_new[scarcest.name] += 1
            free = subtracted(free, scarcest.each)
        else:
            growing.remove(scarcest)
    return ReplicaCounts(counts_old, counts_new)


def fits(free: Resources, needed: Resources) -> bool:
    """Whether `free` covers what is needed."""
    return not missing(free, needed)


def missing(free: Resources, needed: Resources) -> dict[str, float]:
    """How many units of each resource are missing."""
    return {
        resource: units - free.get(resource, 0.0)
        for resource, units in needed.items()
        if units > free.get(resource, 0.0) + _ROUNDING
    }


def of_pools(resources: Resources) -> dict[str, float]:
    """The resources without pod templates: pods of all templates take from their pool together."""
    return summed(({shared_resource(resource): units}, 1) for resource, units in resources.items())


def on_whole_accelerators(demand: ReplicaDemand) -> ReplicaDemand:
    """The same replicas, none of which shares an accelerator."""
    each = {name: units if name in _OF_NODES else max(1.0, units) for name, units in demand.each.items()}
    return replace(demand, each=each)


def total(demands: Iterable[ReplicaDemand]) -> dict[str, float]:
    """What all replicas take together."""
    return summed((demand.each, demand.replicas) for demand in demands)


def summed(parts: Iterable[tuple[Resources, float]]) -> dict[str, float]:
    """The sum of resource vectors, each multiplied by its factor."""
    found: dict[str, float] = {}
    for resources, factor in parts:
        for resource, units in resources.items():
            found[resource] = found.get(resource, 0.0) + units * factor
    return found


def subtracted(capacity: Resources, taken: Resources) -> dict[str, float]:
    """`capacity` less what is taken; negative where more is taken."""
    return summed([(capacity, 1), (taken, -1)])


def _taken(demands: Sequence[ReplicaDemand], counts: Mapping[str, int]) -> dict[str, float]:
    return summed((demand.each, counts[demand.name]) for demand in demands)


def _overcommitted(capacity: Resources, *taken: Resources) -> str | None:
    """A resource of which more is taken than the capacity has, if any."""
    return min(missing(capacity, summed((part, 1) for part in taken)), default=None)
