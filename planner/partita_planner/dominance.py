"""Which candidate pipelines can be dropped without changing any optimum.

A pipeline that serves x needs ceil(x / r) units of each of its stages' resources; a resource is whole GPUs of a
pool, or vGPUs of one size of a pool, and r is what one unit serves. B is superfluous if some A is at least as fast
and needs, for every x, no more units of any resource than B:

1. both have the same resources, and A serves at least as much per unit, stage by stage; or
2. A has one stage for each resource, all of which B has, and serves at least 1 / sum(1 / r) per unit, the sum over
   B's stages on that resource; for ceil(x * sum(1 / r)) <= sum(ceil(x / r)).

Dominance in a linear relaxation or under a convex hull would drop more, but is wrong with integer counts.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")


@dataclass(frozen=True)
class Costed(Generic[T]):
    """A candidate, by what matters for dominance."""

    item: T
    micros: int
    """Its latency."""
    rates: tuple[tuple[Hashable, float], ...]
    """Resource and samples per second of one unit, for every stage, in sorted order."""

    def units(self) -> float:
        """Units of all resources together for each sample per second; never less than its dominator's."""
        return sum(1 / rate for _, rate in self.rates)

    @property
    def resources(self) -> tuple[Hashable, ...]:
        """The resource of every stage."""
        return tuple(resource for resource, _ in self.rates)


def undominated(candidates: Sequence[Costed[T]], latency_counts: bool = True) -> list[Costed[T]]:
    """The candidates that no other one dominates, one of each set of equals, in a stable order.

    Without `latency_counts`, a slower candidate may dominate a faster one.
    """
    ranked = sorted(candidates, key=lambda c: (c.micros if latency_counts else 0, c.units(), len(c.rates), c.micros))
    column = {resource: i for i, resource in enumerate(dict.fromkeys(r for c in ranked for r in c.resources))}
    kept: list[Costed[T]] = []
    one_for_each = np.zeros((len(ranked), len(column)))
    """Units for each sample per second, by resource, of the kept ones with one stage for each resource."""
    rows = 0
    repeated: dict[tuple[Hashable, ...], list[Costed[T]]] = {}
    for candidate in ranked:
        needs = np.zeros(len(column))
        for resource, rate in candidate.rates:
            needs[column[resource]] += 1 / rate
        if (one_for_each[:rows] <= needs).all(axis=1).any():
            continue
        if len(set(candidate.resources)) == len(candidate.rates):
            one_for_each[rows] = needs
            rows += 1
        else:
            alike = repeated.setdefault(candidate.resources, [])
            if any(_serves_as_much(rival, candidate) for rival in alike):
                continue
            alike.append(candidate)
        kept.append(candidate)
    return kept


def _serves_as_much(one: Costed[T], other: Costed[T]) -> bool:
    """Whether each of its stages serves at least as much as the other's on the same resource."""
    return all(rate >= theirs for (_, rate), (_, theirs) in zip(one.rates, other.rates, strict=True))
