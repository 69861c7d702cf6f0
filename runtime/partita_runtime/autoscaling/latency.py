"""Latencies as counts: how many calls took how long, in steps of a tenth. Counts can be added and subtracted."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import ceil, log
from typing import Final

_LEAST_MICROS: Final = 100
_STEP: Final = 1.1
STEPS: Final = 200
"""The last one is of everything that takes longer than hours."""


def latency_key(module: str, micros: int) -> str:
    """What is counted for a call of an endpoint: its module, and the number of a step."""
    step = ceil(log(max(micros, _LEAST_MICROS) / _LEAST_MICROS, _STEP) - 1e-9)
    return f"{module}/{min(step, STEPS - 1)}"


def latencies_of(module: str, counts: Mapping[str, int]) -> tuple[int, ...]:
    """The counts of a module's calls, by the number of the step."""
    return tuple(counts.get(f"{module}/{step}", 0) for step in range(STEPS))


def percentile(calls: Sequence[int], share: float) -> int:
    """The latency (microseconds) that this share of the calls did not exceed, rounded up to a step. 0 without calls."""
    if not sum(calls):
        return 0
    step = bisect_right([*accumulate(calls)], ceil(sum(calls) * share) - 1)
    return round(_LEAST_MICROS * _STEP**step)
