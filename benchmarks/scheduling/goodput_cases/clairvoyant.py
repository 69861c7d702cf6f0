"""An upper bound for GPUs that several models share: a scheduler that knows all arrivals in advance."""

from collections.abc import Sequence
from math import floor

import numpy as np
from benchmarks.scheduling.goodput_cases.measure import LARGEST_BATCH, TARGET, Effort, Model
from numpy.typing import NDArray

from partita_api.inferencesession import ArrivalProcess
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.load_search import goodput

PRICES = (0.05, 0.15, 0.3, 0.6, 1.0)
"""Of giving a request up, in the fixed time of a batch and above the time of one request more in it."""


def clairvoyant_goodput(models: Sequence[Model], gpus: int, at_most: float, effort: Effort) -> float:
    """The highest total rate, the same for every model, that the GPUs can serve (see `needed_ms`)."""
    return goodput(lambda rate: gpus_needed(models, rate, effort) <= gpus, at_most, precision=effort.precision)


def gpus_needed(models: Sequence[Model], rate: float, effort: Effort) -> float:
    """The number of permanently busy GPUs that serve TARGET of each model's requests in time."""
    arrivals = arrivals_at(ArrivalProcess.POISSON, rate / len(models))
    drawn = np.random.SeedSequence(effort.seeds[0]).spawn(len(models))
    busy_ms = sum(
        needed_ms(model, 1000 * arrivals(effort.seconds, np.random.default_rng(seed)))
        for model, seed in zip(models, drawn, strict=True)
    )
    return busy_ms / (1000 * effort.seconds + max(model.slo_ms for model in models))


def needed_ms(model: Model, arrivals: NDArray[np.float64], target: float = TARGET) -> float:
    """A lower bound of the GPU milliseconds that serve `target` of these requests in time, in order.

    All arrivals (in milliseconds) are known, and a GPU is free whenever it is wanted: it is the cheapest way to cut the
    arrivals into batches that end before the deadline of their first request. What may be given up has a price, and
    what so many cost is taken off: a lower bound at any price (Lagrangian relaxation), of which the highest counts.
    """
    alpha, beta, slo = model.alpha_ms, model.beta_ms, model.slo_ms
    prices = alpha + beta * np.array(PRICES)
    least = np.zeros((arrivals.size + 1, len(PRICES)))  # [n]: for the first n arrivals
    first = 0
    for last, at in enumerate(arrivals):
        while at - arrivals[first] + alpha + beta > slo:
            first += 1
        there = np.arange(last - first + 1, 0, -1)
        batch = np.minimum(there, ((slo - beta - at + arrivals[first : last + 1]) / alpha + 1e-9).astype(np.int64))
        batch = np.minimum(batch, LARGEST_BATCH)
        cost = least[first : last + 1] + (alpha * batch + beta)[:, None] + (there - batch)[:, None] * prices
        least[last + 1] = np.minimum(least[last] + prices, cost.min(axis=0))
    return float((least[-1] - prices * floor((1 - target) * arrivals.size + 1e-9)).max())
