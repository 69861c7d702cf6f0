"""The bound of the goodput benchmark, compared with an exhaustive search."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import pytest
from benchmarks.scheduling.goodput_cases.clairvoyant import needed_ms
from benchmarks.scheduling.goodput_cases.measure import Model

MODEL = Model("model", alpha_ms=1.0, beta_ms=4.0, slo_ms=12.0)


def batchings(arrivals: Sequence[float]) -> Iterator[list[int]]:
    """The sizes of the batches, for each division of these arrivals into batches that are in time."""
    if not arrivals:
        yield []
    for size in range(1, len(arrivals) + 1):
        if arrivals[size - 1] - arrivals[0] + MODEL.latency_ms(size) <= MODEL.slo_ms:
            for others in batchings(arrivals[size:]):
                yield [size, *others]


def cheapest(arrivals: Sequence[float], given_up: int) -> float:
    return min(
        sum(MODEL.latency_ms(size) for size in sizes)
        for served in combinations(arrivals, len(arrivals) - given_up)
        for sizes in batchings(served)
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_is_the_cheapest_way_to_batch_everything(seed: int) -> None:
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(2.0, 8))
    assert needed_ms(MODEL, arrivals) == pytest.approx(cheapest([*arrivals], 0))


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_is_not_above_the_cost_when_some_requests_are_dropped(seed: int) -> None:
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(2.0, 8))
    bound, exact = needed_ms(MODEL, arrivals, target=0.75), cheapest([*arrivals], 2)
    assert 0.7 * exact < bound <= exact + 1e-9
