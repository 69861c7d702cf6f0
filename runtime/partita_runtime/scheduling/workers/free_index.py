"""Which of many numbered resources is free: a tree of minima over the times at which they become free."""

from collections.abc import Sequence
from typing import Final

NEVER: Final = 1 << 60
"""A time after all others (microseconds)."""


class _TreeNode:
    """A node of the tree: a leaf is its own child, the root its own parent.

    An object instead of an index into a list of times: compiled, a time in an object is a plain machine word.
    """

    __slots__ = ("least", "left", "number", "parent", "right")

    def __init__(self, number: int, least: int) -> None:
        self.number = number
        """The resource of a leaf; -1 for inner nodes."""
        self.least = least
        """When the first resource below this node becomes free."""
        self.parent = self
        self.left = self
        self.right = self


class FreeIndex:
    """The times at which numbered resources become free; all operations are O(log n) or less."""

    __slots__ = ("_leaves", "_root")

    def __init__(self, times: Sequence[int] = ()) -> None:
        self._leaves = [_TreeNode(number, time) for number, time in enumerate(times or (NEVER,))]
        self._root = _root_of(self._leaves)

    def set(self, number: int, free_at: int) -> None:
        """Resource `number` (from 0) becomes free at `free_at`; NEVER removes it."""
        if number >= len(self._leaves):
            self._grow(number + 1)
        node = self._leaves[number]
        node.least = free_at
        while True:
            parent = node.parent
            least = parent.left.least
            other = parent.right.least
            if other < least:
                least = other
            if parent.least == least:  # also at the root, which is its own parent
                return
            parent.least = least
            node = parent

    def earliest(self) -> int:
        """The number of the resource that becomes free first; the lowest number among equals."""
        node = self._root
        while True:
            left = node.left
            if left is node:
                return node.number
            node = left if left.least == node.least else node.right

    def least(self) -> int:
        """When the first resource becomes free; NEVER if there is none."""
        return self._root.least

    def first_free(self, at: int, start: int = 0) -> int:
        """The lowest number, from `start` on, of a resource that is free at a time; -1 if none is."""
        if start >= len(self._leaves):
            return -1
        node = self._leaves[start] if start else self._root
        while node.least > at:
            parent = node.parent
            while parent.right is node:  # the right end of its parent: climb
                if parent is node:
                    return -1
                node, parent = parent, parent.parent
            if parent is node:
                return -1
            node = parent.right
        while True:
            left = node.left
            if left is node:
                return node.number
            node = left if left.least <= at else node.right

    def _grow(self, size: int) -> None:
        times = [leaf.least for leaf in self._leaves]
        times += [NEVER] * (max(size, 2 * len(times)) - len(times))
        self._leaves = [_TreeNode(number, time) for number, time in enumerate(times)]
        self._root = _root_of(self._leaves)


def _root_of(leaves: list[_TreeNode]) -> _TreeNode:
    """Build the tree above these leaves."""
    nodes = leaves
    while len(nodes) > 1:
        pairs = [_joined(nodes[i], nodes[i + 1]) for i in range(0, len(nodes) - 1, 2)]
        nodes = pairs + nodes[2 * len(pairs) :]
    return nodes[0]


def _joined(left: _TreeNode, right: _TreeNode) -> _TreeNode:
    """The parent of two nodes."""
    node = _TreeNode(-1, min(left.least, right.least))
    node.left, node.right = left, right
    left.parent = right.parent = node
    return node
