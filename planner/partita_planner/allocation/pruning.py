"""Which templates can be dropped for a given demand and given prices, without changing the optimum.

A template needs ceil(x / r) allocation units (GPUs or vGPUs) of each stage for x samples per second, each at the
stage's price. So its price c(x) is a step function of x.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from partita_planner.solver.deadline import NEVER, Deadline, OutOfTimeError
from partita_planner.solver.tolerances import ROUNDING
from partita_planner.templates.templates import Template, TemplateStage

EXACT_STEPS = 64
"""Up to so many steps of c(x) are evaluated one by one; beyond them, its linear bounds are used."""
STEPS_OF_EACH = 8
"""Up to so many steps of c(x) of one stage are evaluated when an excess is bounded."""


def least_excess(
    templates: Sequence[Template],
    demand: float,
    duals: NDArray[np.float64],
    price: Callable[[TemplateStage], float],
    unit_rate: Callable[[TemplateStage], float],
) -> NDArray[np.float64]:
    """For each template, a lower bound on what one use of it adds to the optimum of a linear relaxation.

    With bound B and duals of a relaxation, a template is part of no solution better than U if B + excess >= U:

        excess = min over 0 < x <= demand of  c(x) - dual * x

    where the prices in c include the duals of the pools, and `duals` are the duals of the module's demand, less the
    price of each sample on the template. Between two steps the excess falls in x: the minimum is at the end of a step.
    """
    width = max((len(t.stages) for t in templates), default=1)
    stages = list(dict.fromkeys(stage for t in templates for stage in t.stages))
    number = {stage: i for i, stage in enumerate(stages)}
    used = np.array([[*(number[s] for s in t.stages), *[-1] * (width - len(t.stages))] for t in templates], dtype=int)
    used = used.reshape(len(templates), width)
    prices = np.array([*map(price, stages), 0.0])[used]
    rates = np.array([*map(unit_rate, stages), inf])[used]
    reduced_costs = np.maximum(0.0, (prices / rates).sum(axis=1) - duals)
    exact_to = np.minimum(demand, STEPS_OF_EACH * rates.min(axis=1, initial=inf))
    least = np.where(exact_to < demand, reduced_costs * exact_to, inf)
    with np.errstate(invalid="ignore"):
        ends = [np.minimum(k * rates[:, s], exact_to) for s in range(width) for k in range(1, STEPS_OF_EACH + 1)]
        for x in ends:
            paid = (prices * np.ceil(x[:, None] / rates - ROUNDING)).sum(axis=1)
            least = np.minimum(least, paid - duals * x)
    return np.maximum(0.0, least)


def promising(
    templates: Sequence[Template], excess: Mapping[Template, float], slack: float, most: int | None = None
) -> tuple[Template, ...]:
    """The templates whose excess is within `slack`, in their order; at most the `most` with the least excess."""
    within = [t for t in templates if excess[t] <= slack]
    if most is None or len(within) <= most:
        return tuple(within)
    best = set(sorted(within, key=lambda t: excess[t])[:most])
    return tuple(t for t in within if t in best)


def cheapest_by_latency(
    templates: Sequence[Template],
    demand: float,
    price: Callable[[TemplateStage], float],
    unit_rate: Callable[[TemplateStage], float],
    deadline: Deadline = NEVER,
) -> tuple[Template, ...]:
    """The templates for which no other one is as fast and as cheap at every throughput up to `demand`.

    Only for unlimited pools: there, GPUs of different pools differ only in price. Raises OutOfTimeError.
    """
    curves = [_PriceCurve.of([(price(s), unit_rate(s)) for s in t.stages], demand) for t in templates]
    ranked = sorted(range(len(templates)), key=lambda i: (templates[i].latency_micros, curves[i].prices[-1]))
    width = max((len(t.stages) for t in templates), default=0)
    kept: list[int] = []
    unit_prices = np.zeros((len(templates), width))
    unit_rates = np.ones((len(templates), width))
    for i in ranked:
        if deadline.passed:
            raise OutOfTimeError
        if kept and curves[i].dominated(unit_prices[: len(kept)], unit_rates[: len(kept)], demand):
            continue
        for column, stage in enumerate(templates[i].stages):
            unit_prices[len(kept), column], unit_rates[len(kept), column] = price(stage), unit_rate(stage)
        kept.append(i)
    return tuple(templates[i] for i in sorted(kept))


@dataclass(frozen=True)
class _PriceCurve:
    """c(x) of one template: the ends of its steps up to the demand, and its price there."""

    ends: NDArray[np.float64]
    prices: NDArray[np.float64]
    slope: float
    """Price of a sample per second; c(x) >= slope * x."""

    @staticmethod
    def of(units: Sequence[tuple[float, float]], demand: float) -> "_PriceCurve":
        ends = {k * r for _, r in units for k in range(1, EXACT_STEPS + 1) if k * r < demand}
        steps = np.array([*sorted(ends)[:EXACT_STEPS], demand])
        prices = sum(p * np.ceil(steps / r - ROUNDING) for p, r in units)
        return _PriceCurve(steps, np.asarray(prices), sum(p / r for p, r in units))

    def dominated(self, unit_prices: NDArray[np.float64], unit_rates: NDArray[np.float64], demand: float) -> bool:
        """Whether one of the templates (a row each, a column for each stage) is never more expensive.

        Prices only rise, so comparing them at the ends of this curve's steps suffices. If there are too many steps, a
        template's linear upper bound must lie below this curve's lower bound for the rest.
        """
        theirs = (unit_prices[:, :, None] * np.ceil(self.ends / unit_rates[:, :, None] - ROUNDING)).sum(axis=1)
        never_dearer = (theirs <= self.prices * (1 + ROUNDING)).all(axis=1)
        if len(self.ends) > EXACT_STEPS:
            slopes, jumps = (unit_prices / unit_rates).sum(axis=1), unit_prices.sum(axis=1)
            for x in (self.ends[-2], demand):
                never_dearer &= slopes * x + jumps <= self.slope * x
        return bool(never_dearer.any())
