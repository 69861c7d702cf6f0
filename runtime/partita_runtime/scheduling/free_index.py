"""Which of many numbered resources is free: a tree of minima over the times at which they become so."""

from collections.abc import Sequence
from typing import Final

NEVER: Final = 1 << 60
"""A time after all others (microseconds)."""


class FreeIndex:
    """The time at which each of a row of resources becomes free; all operations are O(log n) or less."""

    __slots__ = ("_leaves", "_tree")

    def __init__(self, times: Sequence[int] = ()) -> None:
        leaves = 1
        while leaves < len(times):
            leaves *= 2
        tree = [NEVER] * leaves + list(times) + [NEVER] * (leaves - len(times))
        for node in range(leaves - 1, 0, -1):
            tree[node] = min(tree[2 * node], tree[2 * node + 1])
        self._leaves = leaves
        self._tree = tree

    def set(self, number: int, free_at: int) -> None:
        """Resource `number` (from 0) becomes free at `free_at`; NEVER takes it out."""
        while number >= self._leaves:
            self._grow()
        tree = self._tree
        node = self._leaves + number
        tree[node] = free_at
        lowest = free_at
        while node > 1:
            other = tree[node ^ 1]
            if other < lowest:
                lowest = other
            node >>= 1
            if tree[node] == lowest:
                break
            tree[node] = lowest

    def earliest(self) -> int:
        """The number of the resource that becomes free first, the lowest number among equals."""
        tree, leaves = self._tree, self._leaves
        node = 1
        while node < leaves:
            node *= 2
            if tree[node + 1] < tree[node]:
                node += 1
        return node - leaves

    def least(self) -> int:
        """When the first resource becomes free; NEVER if there is none."""
        return self._tree[1]

    def first_free(self, at: int, start: int = 0) -> int:
        """The lowest number, from `start` on, of a resource that is free at a time; -1 if none is."""
        tree, leaves = self._tree, self._leaves
        if start >= leaves:
            return -1
        node = 1
        if start:
            node = leaves + start
            while tree[node] > at:
                while node & 1:  # the right end of its parent: climb
                    node >>= 1
                if node == 0:
                    return -1
                node += 1
        elif tree[1] > at:
            return -1
        while node < leaves:
            node *= 2
            if tree[node] > at:
                node += 1
        return node - leaves

    def _grow(self) -> None:
        times = self._tree[self._leaves :]
        grown = FreeIndex([*times, *[NEVER] * self._leaves])
        self._leaves, self._tree = grown._leaves, grown._tree
