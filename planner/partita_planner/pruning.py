"""Which templates can be dropped for a given demand and given prices, without changing the optimum.

A template needs ceil(x / r) units of each stage for x samples per second, at the stage's price each, so its price is
a step function of x, c(x). Between two steps it is constant.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from partita_planner.templates import Template, TemplateStage

EXACT_STEPS = 64
"""Up to so many steps of c(x) are looked at one by one; beyond, its linear bounds are used."""
ROUNDING = 1e-9


def least_excess(
    template: Template,
    demand: float,
    dual: float,
    price: Callable[[TemplateStage], float],
    unit_rate: Callable[[TemplateStage], float],
) -> float:
    """A lower bound on what one use of `template` adds to the optimum of a linear relaxation.

    With bound B and duals of a relaxation, a template is part of no solution better than U if B + excess >= U:

        excess = min over 0 < x <= demand of  c(x) - dual * x

    where the prices in c hold the duals of the pools, and `dual` is that of the module's demand. Between two steps the
    excess falls in x, so the minimum is at the end of a step.
    """
    units = [(price(stage), unit_rate(stage)) for stage in template.stages]
    reduced_cost = max(0.0, sum(p / r for p, r in units) - dual)
    exact_to = min(demand, EXACT_STEPS / 8 * min(r for _, r in units))
    steps = {k * r for _, r in units for k in range(1, ceil(exact_to / r) + 1) if k * r < exact_to} | {exact_to}
    found = [sum(p * ceil(x / r - ROUNDING) for p, r in units) - dual * x for x in steps]
    if exact_to < demand:
        found.append(reduced_cost * exact_to)
    return max(0.0, min(found))


def promising(
    templates: Sequence[Template], excess: Mapping[Template, float], slack: float, most: int | None = None
) -> tuple[Template, ...]:
    """The templates whose excess is within `slack`, in their order; of these the `most` with the least excess."""
    within = [t for t in templates if excess[t] <= slack]
    best = set(sorted(within, key=lambda t: excess[t])[:most])
    return tuple(t for t in within if t in best)


def cheapest_by_latency(
    templates: Sequence[Template],
    demand: float,
    price: Callable[[TemplateStage], float],
    unit_rate: Callable[[TemplateStage], float],
) -> tuple[Template, ...]:
    """The templates for which no other one is as fast and as cheap at every throughput up to `demand`.

    Only for pools without end, where GPUs of different pools differ in nothing but price.
    """
    curves = [_PriceCurve.of([(price(s), unit_rate(s)) for s in t.stages], demand) for t in templates]
    ranked = sorted(range(len(templates)), key=lambda i: (templates[i].latency_micros, curves[i].prices[-1]))
    width = max((len(t.stages) for t in templates), default=0)
    kept: list[int] = []
    unit_prices = np.zeros((len(templates), width))
    unit_rates = np.ones((len(templates), width))
    for i in ranked:
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
        """Whether one of the templates (row by row, a column for each stage) is never dearer.

        A price only rises, so the ends of this curve's steps decide. If there were too many of them, a template's
        linear upper bound must lie below this one's lower bound over the rest.
        """
        theirs = (unit_prices[:, :, None] * np.ceil(self.ends / unit_rates[:, :, None] - ROUNDING)).sum(axis=1)
        never_dearer = (theirs <= self.prices * (1 + ROUNDING)).all(axis=1)
        if len(self.ends) > EXACT_STEPS:
            slopes, jumps = (unit_prices / unit_rates).sum(axis=1), unit_prices.sum(axis=1)
            for x in (self.ends[-2], demand):
                never_dearer &= slopes * x + jumps <= self.slope * x
        return bool(never_dearer.any())
