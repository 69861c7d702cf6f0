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
from functools import cached_property
from itertools import combinations
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Costed(Generic[T]):
    """A candidate, by what matters for dominance."""

    item: T
    micros: int
    """Its latency."""
    rates: tuple[tuple[Hashable, float], ...]
    """Resource and samples per second of one unit, for every stage, in sorted order."""

    @cached_property
    def pooled(self) -> dict[Hashable, float]:
        """1 / sum(1 / r) for every resource."""
        inverse: dict[Hashable, float] = {}
        for resource, rate in self.rates:
            inverse[resource] = inverse.get(resource, 0.0) + 1 / rate
        return {resource: 1 / total for resource, total in inverse.items()}

    @cached_property
    def resources(self) -> frozenset[Hashable]:
        """The resources that it needs."""
        return frozenset(self.pooled)

    def units(self) -> float:
        """Units of all resources together for each sample per second; never less than its dominator's."""
        return sum(1 / rate for _, rate in self.rates)

    def dominates(self, other: "Costed[T]") -> bool:
        """Whether it needs no more units than `other` for any throughput; latency is left to the caller."""
        if len(self.resources) == len(self.rates):
            return all(rate >= other.pooled.get(resource, float("inf")) for resource, rate in self.rates)
        return len(self.rates) == len(other.rates) and all(
            mine == theirs and rate >= other_rate
            for (mine, rate), (theirs, other_rate) in zip(self.rates, other.rates, strict=True)
        )


def undominated(candidates: Sequence[Costed[T]], latency_counts: bool = True) -> list[Costed[T]]:
    """The candidates that no other one dominates, one of each set of equals, in a stable order.

    Without `latency_counts`, a slower candidate may dominate a faster one.
    """
    ranked = sorted(candidates, key=lambda c: (c.micros if latency_counts else 0, c.units(), len(c.rates), c.micros))
    kept: list[Costed[T]] = []
    by_resources: dict[frozenset[Hashable], list[Costed[T]]] = {}
    for candidate in ranked:
        rivals = (rival for subset in _subsets(candidate.resources) for rival in by_resources.get(subset, ()))
        if not any(rival.dominates(candidate) for rival in rivals):
            kept.append(candidate)
            by_resources.setdefault(candidate.resources, []).append(candidate)
    return kept


def _subsets(resources: frozenset[Hashable]) -> list[frozenset[Hashable]]:
    return [frozenset(chosen) for size in range(1, len(resources) + 1) for chosen in combinations(resources, size)]
