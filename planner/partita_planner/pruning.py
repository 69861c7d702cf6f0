"""Which templates can still be part of a solution better than the best one known: an exact filter by reduced cost.

From a linear relaxation with bound B and duals, a template whose least use adds `excess` to B cannot be part of any
solution better than U if B + excess >= U. For x samples per second it needs ceil(x / r) units of each stage, so

    excess = min over 0 < x <= demand of  sum over stages of price * ceil(x / r)  -  dual * x

where `price` holds the dual of the pool's capacity and `dual` is that of the module's demand.
"""

from collections.abc import Callable, Sequence
from math import ceil

from partita_planner.templates import Template, TemplateStage

EXACT_UNITS = 8
"""Up to so many units of a stage the excess is exact; beyond, it is bounded from below."""


def least_excess(
    template: Template,
    demand: float,
    dual: float,
    price: Callable[[TemplateStage], float],
    unit_rate: Callable[[TemplateStage], float],
) -> float:
    """What one use of `template` adds at least to the relaxation's bound; never more than the true minimum.

    Between two jumps of a ceil the excess falls in x, so the minimum is at the end of a step.
    """
    units = [(price(stage), unit_rate(stage)) for stage in template.stages]
    reduced_cost = max(0.0, sum(p / r for p, r in units) - dual)
    exact_to = min(demand, EXACT_UNITS * min(r for _, r in units))
    steps = {k * r for _, r in units for k in range(1, EXACT_UNITS + 1) if k * r < exact_to} | {exact_to}
    found = [sum(p * ceil(x / r - 1e-9) for p, r in units) - dual * x for x in steps]
    if exact_to < demand:
        found.append(reduced_cost * exact_to)
    return max(0.0, min(found))


def promising(
    templates: Sequence[Template], excess: Sequence[float], slack: float, most: int | None = None
) -> tuple[Template, ...]:
    """The templates whose excess is within `slack`, in their order; of these the `most` with the least excess."""
    within = [i for i, value in enumerate(excess) if value <= slack]
    if most is not None:
        within = sorted(sorted(within, key=lambda i: excess[i])[:most])
    return tuple(templates[i] for i in within)
