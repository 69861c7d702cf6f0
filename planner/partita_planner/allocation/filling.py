"""Serves all modules equally from the GPUs that a plan leaves, a few GPUs at a time: fast, but not optimal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from partita_planner.allocation.demand import ModuleDemand
from partita_planner.allocation.deployments import ModuleDeployments, TemplateDeployment, in_dispatch_order
from partita_planner.allocation.relaxation import Relaxation
from partita_planner.allocation.resources import AvailableResources
from partita_planner.solver.tolerances import ROUNDING
from partita_planner.templates.pareto import Floats, Integers

FILLED_GPUS: Final = 8
"""An offer fills up to so many GPUs of one of its template's stages."""
MOST_STEPS: Final = 100
"""The most offers of one module."""
HALVINGS: Final = 12
FREE: Final = 1e-3
"""The price of GPUs of a pool that is not scarce, as a share of the highest price."""


def filled(
    deployments: ModuleDeployments,
    demands: Sequence[ModuleDemand],
    resources: AvailableResources,
    relaxation: Relaxation,
) -> ModuleDeployments | None:
    """`deployments` with more GPUs for all modules, at the highest level that the pools allow.

    Stages own whole GPUs, priced as in the relaxation. None if the GPUs left do not suffice for all modules.
    """
    pools = sorted(resources.pools)
    used = deployments.gpus()
    left = np.array([resources.pools[name].gpus - used.get(name, 0) for name in pools])
    offers = [_Offers.of(demand, pools, relaxation.gpu) for demand in demands]
    served = np.array([deployments.throughput(d.module) for d in demands])
    capacity = np.array([d.capacity for d in demands])
    best: list[list[int]] | None = None
    low, high = float((served / capacity).min()), relaxation.bound
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        chosen = _chosen(offers, left, middle * capacity - served)
        low, high, best = (middle, high, chosen) if chosen is not None else (low, middle, best)
    if best is None:
        return None
    together = zip(demands, offers, best, strict=True)
    return ModuleDeployments(
        {d.module: _with_more(deployments.get(d.module, ()), d, o, rows, resources) for d, o, rows in together}
    )


def _chosen(offers: Sequence["_Offers"], left: Integers, needs: Floats) -> list[list[int]] | None:
    """For every module the offers that serve its need; None if the GPUs left do not suffice."""
    chosen: list[list[int]] = []
    for offer, need in zip(offers, needs.tolist(), strict=True):
        rows: list[int] = []
        while need > 0:
            row = offer.best(left, need) if len(rows) < MOST_STEPS else None
            if row is None:
                return None
            rows.append(row)
            left, need = left - offer.gpus[row], need - float(offer.serves[row])
        chosen.append(rows)
    return chosen


def _with_more(
    begun: Sequence[TemplateDeployment],
    demand: ModuleDemand,
    offers: "_Offers",
    rows: Sequence[int],
    resources: AvailableResources,
) -> tuple[TemplateDeployment, ...]:
    """The deployments of one module with the offers of these rows."""
    replicas = {x.template: x.replicas for x in begun}
    for row in rows:
        template = demand.templates[offers.template[row]]
        more = [resources.vgpus(s, int(n)) for s, n in zip(template.stages, offers.stage_gpus[row], strict=False)]
        before = replicas.get(template, (0,) * len(more))
        replicas[template] = tuple(a + b for a, b in zip(before, more, strict=True))
    return in_dispatch_order([TemplateDeployment(t, counts) for t, counts in replicas.items()], resources)


@dataclass(frozen=True)
class _Offers:
    """Ways to serve a little more of a module's demand, a row each."""

    template: Integers
    """Its number among the module's."""
    stage_gpus: Integers
    """[row][stage]: whole GPUs."""
    gpus: Integers
    """[row][pool]"""
    serves: Floats
    price: Floats

    @classmethod
    def of(cls, demand: ModuleDemand, pools: Sequence[str], gpu: Mapping[str, float]) -> "_Offers":
        """All offers of the module's templates."""
        width = max(len(t.stages) for t in demand.templates)
        rates = np.full((len(demand.templates), width), np.inf)
        where = np.zeros((len(demand.templates), width), dtype=np.int64)
        for row, one in enumerate(demand.templates):
            for column, stage in enumerate(one.stages):
                rates[row, column] = stage.gpu_throughput
                where[row, column] = pools.index(stage.pool)
        template, filled_stage = np.nonzero(np.isfinite(rates))
        count = np.arange(1, FILLED_GPUS + 1)
        serves = np.repeat(rates[template, filled_stage], FILLED_GPUS) * np.tile(count, len(template))
        template = np.repeat(template, FILLED_GPUS)
        stage_gpus = np.ceil(serves[:, None] / rates[template] * (1 - ROUNDING)).astype(np.int64)
        gpus = np.zeros((len(serves), len(pools)), dtype=np.int64)
        for position in range(width):
            np.add.at(gpus, (np.arange(len(serves)), where[template, position]), stage_gpus[:, position])
        prices = np.array([gpu.get(name, 0.0) for name in pools])
        prices = np.maximum(prices, FREE * prices.max(initial=0.0) + ROUNDING)
        return cls(template, stage_gpus, gpus, serves, gpus @ prices)

    def best(self, left: Integers, need: float) -> int | None:
        """The offer that serves most of the need for its price and fits the GPUs left."""
        worth = np.minimum(self.serves, need) / self.price
        worth[~(self.gpus <= left).all(axis=1)] = 0.0
        row = int(worth.argmax())
        return row if worth[row] > 0 else None
