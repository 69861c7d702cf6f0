"""The search for the highest load of a plan: goodput by bisection, load factor in steps."""

from collections.abc import Callable
from typing import Final

Attainment = Callable[[float], float]
"""(requests per second) -> share of the requests that are answered in time."""

_LOAD_STEP: Final = 0.05


def goodput(attainment: Attainment, at_most: float, target: float = 0.99, precision: float = 0.005) -> float:
    """The highest rate at which `target` of the requests are in time, to a relative `precision` of `at_most`.

    By bisection between 0 and `at_most`, an upper bound, as in the papers: dropped and late requests are equally bad,
    so a target of 0.99 means a p99 latency within the SLO. Raises ValueError if `at_most` is not above 0.
    """
    if at_most <= 0:
        raise ValueError(f"the upper bound of the rate is {at_most:g}; give one above 0")
    low, high = 0.0, at_most
    while high - low > precision * at_most:
        middle = (low + high) / 2
        if attainment(middle) >= target:
            low = middle
        else:
            high = middle
    return low


def load_factor(attainment: Attainment, throughput: float, target: float = 0.99, step: float = _LOAD_STEP) -> float:
    """The highest share of the planned throughput, in steps, that attains `target` (PPipe, section 7.1)."""
    carried = 0
    while (carried + 1) * step <= 1 + 1e-9 and attainment((carried + 1) * step * throughput) >= target:
        carried += 1
    return carried * step
