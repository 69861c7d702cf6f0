"""Collection times of batches that dummy requests may fill sooner, at a price.

    min sum of a[m] / y[m]   s.t.  sum of y[m] on path p <= s[p],   0 < y[m] <= most[m]

is convex. Newton's method on a logarithmic barrier solves it: with k constraints and weight 1/t of the barrier, the
value is within k / t of the optimum.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
GROWTH: Final = 30.0
GAP: Final = 1e-11
NEWTON_STEPS: Final = 50


def shortest_collections(
    areas: Sequence[float],
    most: Sequence[float],
    paths: Sequence[Sequence[int]],
    seconds: Sequence[float],
    limit: float,
) -> list[float] | None:
    """y for every module, 0 if its area is 0; within GAP of the optimum.

    None if the optimum is not below `limit`, or no y keeps the constraints.
    """
    free = [m for m, area in enumerate(areas) if area > 0]
    rows = [([float(m in path) for m in free], s) for path, s in zip(paths, seconds, strict=True)]
    rows = [row for row in rows if any(row[0])]
    if any(s <= 0 for _, s in rows):
        return None
    if len(rows) == 1:
        return _along_one_path(areas, most, free, rows[0][1])
    on_path, space = np.array([row for row, _ in rows]), np.array([s for _, s in rows])
    a, cap = np.array([areas[m] for m in free]), np.array([most[m] for m in free])
    share = np.min(np.where(on_path > 0, (space / on_path.sum(axis=1))[:, None], np.inf), axis=0)
    y = 0.5 * np.minimum(cap, share)
    constraints = len(free) + len(rows)
    t = constraints / float((a / y).sum())
    while True:
        for _ in range(NEWTON_STEPS):
            slack, below = space - on_path @ y, cap - y
            gradient = -t * a / y**2 + on_path.T @ (1 / slack) + 1 / below
            hessian = np.diag(2 * t * a / y**3 + 1 / below**2) + on_path.T @ (on_path / slack[:, None] ** 2)
            step = -np.linalg.solve(hessian, gradient)
            decrement = -float(gradient @ step)
            if decrement < 1e-9:
                break
            y = y + min(1.0, 0.9 / _relative_size(step, y, below, slack, on_path @ step)) * step
        value = float((a / y).sum())
        if value - 2 * constraints / t >= limit:
            return None
        if constraints / t <= GAP * value:
            break
        t *= GROWTH
    at_most = np.where(y > cap * (1 - 1e-9), cap, y)
    y = at_most if (on_path @ at_most <= space).all() else y
    found = [0.0] * len(areas)
    for m, collection in zip(free, y.tolist(), strict=True):
        found[m] = collection
    return found


def _along_one_path(areas: Sequence[float], most: Sequence[float], free: Sequence[int], left: float) -> list[float]:
    """The same if all modules lie on one path: y in proportion to the square root of a, up to `most`."""
    found = [0.0] * len(areas)
    roots = sum(areas[m] ** 0.5 for m in free)
    for m in sorted(free, key=lambda m: most[m] / areas[m] ** 0.5):
        found[m] = min(most[m], left * areas[m] ** 0.5 / roots)
        left -= found[m]
        roots -= areas[m] ** 0.5
    return found


def _relative_size(step: Vector, y: Vector, below: Vector, slack: Vector, used: Vector) -> float:
    """Length of the step relative to the distance to the nearest constraint."""
    return float(max((-step / y).max(), (step / below).max(), (used / slack).max(), 1e-9))
