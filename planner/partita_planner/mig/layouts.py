"""All ways to cut one GPU into slices, by the placement table: two slices must not occupy the same memory slice.

Counting compute slices is not enough: 3g + 3g + 1g has seven, but each 3g occupies four of the eight memory slices. So
layouts are enumerated slice by slice. There are few of them, and only those that no other layout contains matter.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from partita_planner.mig.products import Product


@dataclass(frozen=True, order=True)
class SlicePlacement:
    """A slice and where it lies."""

    start: int
    """Its first memory slice."""
    slice: str


@dataclass(frozen=True)
class Layout:
    """Slices of one GPU that fit beside each other."""

    placements: tuple[SlicePlacement, ...]

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Instances by profile."""
        return Counter(placement.slice for placement in self.placements)

    def contains(self, other: "Layout") -> bool:
        """Whether it has at least as many instances of every profile."""
        return all(self.counts.get(name, 0) >= count for name, count in other.counts.items())


@lru_cache(maxsize=64)
def maximal_layouts(product: Product) -> tuple[Layout, ...]:
    """The layouts to which nothing can be added, one for each multiset of slices, in a fixed order."""
    distinct = {frozenset(layout.counts.items()): layout for layout in _layouts_from(product, 0)}
    layouts = sorted(distinct.values(), key=lambda layout: (len(layout.placements), layout.placements))
    return tuple(
        layout for layout in layouts if not any(other is not layout and other.contains(layout) for other in layouts)
    )


def _layouts_from(product: Product, position: int) -> Iterator[Layout]:
    """All layouts of the memory slices from `position` upwards."""
    if position == product.memory_slices:
        yield Layout(())
        return
    for rest in _layouts_from(product, position + 1):
        yield rest
    for s in product.slices:
        if position in s.starts:
            for rest in _layouts_from(product, position + s.size):
                yield Layout((SlicePlacement(position, s.name), *rest.placements))
