"""Which of many numbered resources is free: a tree of minima over the times at which they become so."""

from typing import Final

NEVER: Final = 1 << 62
"""A time after all others (microseconds)."""


class FreeIndex:
    """The time at which each of a row of resources becomes free; all operations are O(log n) or less."""

    __slots__ = ("_leaves", "_tree")

    def __init__(self) -> None:
        self._leaves = 1
        self._tree = [NEVER, NEVER]

    def set(self, number: int, free_at: int) -> None:
        """Resource `number` (from 0) becomes free at `free_at`; NEVER takes it out."""
        while number >= self._leaves:
            self._grow()
        tree = self._tree
        node = self._leaves + number
        tree[node] = free_at
        while node > 1:
            node >>= 1
            left, right = tree[2 * node], tree[2 * node + 1]
            lowest = left if left <= right else right
            if tree[node] == lowest:
                break
            tree[node] = lowest

    def earliest(self) -> tuple[int, int]:
        """(number, time) of the resource that becomes free first, the lowest number among equals."""
        tree = self._tree
        node = 1
        while node < self._leaves:
            node *= 2
            if tree[node + 1] < tree[node]:
                node += 1
        return node - self._leaves, tree[1]

    def first_free(self, at: int, start: int = 0) -> int | None:
        """The lowest number, from `start` on, of a resource that is free at a time; None if none is."""
        if start >= self._leaves:
            return None
        tree = self._tree
        node = self._leaves + start
        while tree[node] > at:
            while node & 1:  # the right end of its parent: climb
                node >>= 1
            if node == 0:
                return None
            node += 1
        while node < self._leaves:
            node *= 2
            if tree[node] > at:
                node += 1
        return node - self._leaves

    def _grow(self) -> None:
        leaves = self._tree[self._leaves :]
        self._leaves *= 2
        self._tree = [NEVER] * (2 * self._leaves)
        for number, free_at in enumerate(leaves):
            if free_at != NEVER:
                self.set(number, free_at)
