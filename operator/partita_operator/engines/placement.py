"""How many replicas of an old and a new plan fit on a cluster at the same time.

Ray resources are vectors (CPUs, GPUs, pool slots), and each replica of a stage takes the same share of each.
Where a replica is placed is Ray's affair; here only the cluster's totals count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_ROUNDING = 1e-6

Resources = Mapping[str, float]


@dataclass(frozen=True)
class RayNode:
    """A node of the Ray cluster that is alive."""

    id: str
    started: float
    """When it joined (Unix seconds)."""
    total: Resources


@dataclass(frozen=True)
class Demand:
    """Replicas of one stage."""

    name: str
    replicas: int
    each: Resources
    """What one replica takes."""


@dataclass(frozen=True)
class SideBySide:
    """Both plans fit, perhaps with fewer replicas than they want: at least one for each stage of either."""

    old: Mapping[str, int]
    new: Mapping[str, int]


def side_by_side(room: Resources, old: Sequence[Demand], new: Sequence[Demand]) -> SideBySide | None:
    """How old and new replicas share the room; None if not even one replica of each stage fits.

    The old ones, which serve, give up no more than one replica of each new stage needs. What is left then goes to
    the new ones, the scarcest first.
    """
    counts_old = {demand.name: demand.replicas for demand in old}
    counts_new = {demand.name: min(1, demand.replicas) for demand in new}
    while scarce := _overcommitted(room, _taken(old, counts_old), _taken(new, counts_new)):
        givers = [demand for demand in old if demand.each.get(scarce, 0.0) > 0 and counts_old[demand.name] > 1]
        if not givers:
            return None
        most = max(givers, key=lambda demand: counts_old[demand.name] * demand.each[scarce])
        counts_old[most.name] -= 1
    left = dict(room)
    _take(left, _taken(old, counts_old))
    _take(left, _taken(new, counts_new))
    growing = list(new)
    while growing:
        scarcest = min(growing, key=lambda demand: counts_new[demand.name] / max(demand.replicas, 1))
        if counts_new[scarcest.name] < scarcest.replicas and fits(left, scarcest.each):
            counts_new[scarcest.name] += 1
            _take(left, scarcest.each)
        else:
            growing.remove(scarcest)
    return SideBySide(counts_old, counts_new)


def fits(room: Resources, needed: Resources) -> bool:
    """Whether there is room for what is needed."""
    return all(units <= room.get(resource, 0.0) + _ROUNDING for resource, units in needed.items())


def missing(room: Resources, needed: Resources) -> dict[str, float]:
    """How many units of each resource there are too few."""
    return {
        resource: units - room.get(resource, 0.0)
        for resource, units in needed.items()
        if units > room.get(resource, 0.0) + _ROUNDING
    }


def total(demands: Sequence[Demand]) -> dict[str, float]:
    """What all replicas take together."""
    return _taken(demands, {demand.name: demand.replicas for demand in demands})


def _taken(demands: Sequence[Demand], counts: Mapping[str, int]) -> dict[str, float]:
    taken: dict[str, float] = {}
    for demand in demands:
        for resource, units in demand.each.items():
            taken[resource] = taken.get(resource, 0.0) + units * counts[demand.name]
    return taken


def _overcommitted(room: Resources, *taken: Resources) -> str | None:
    """A resource of which more is taken than there is, if any."""
    for resource in sorted({resource for part in taken for resource in part}):
        if sum(part.get(resource, 0.0) for part in taken) > room.get(resource, 0.0) + _ROUNDING:
            return resource
    return None


def _take(room: dict[str, float], units: Resources) -> None:
    for resource, taken in units.items():
        room[resource] = room.get(resource, 0.0) - taken
