"""`harpagon`: any number of configurations, dummies, latency-cost efficiency (Harpagon, section III)."""

from dataclasses import replace
from functools import partial
from typing import Final

from partita_planner.configurations.heuristic import HeuristicOptions, solve_heuristically
from partita_planner.configurations.module_scheduling import Dummies, SchedulingRules
from partita_planner.configurations.splitting import GreedySplit
from partita_planner.strategies.configurations import configuration_strategy

OPTIONS: Final = HeuristicOptions(
    scheduling=SchedulingRules(dummies=Dummies.FILL),
    split=GreedySplit(node_merger=True, cost_direct=3),
    reassign=None,
)
"""The paper does not say how many moves R cost-direct takes back; up to three are tried, and the cheapest kept."""

HARPAGON: Final = configuration_strategy(
    "harpagon",
    partial(solve_heuristically, options=OPTIONS),
    partial(solve_heuristically, options=replace(OPTIONS, scheduling=SchedulingRules(dummies=Dummies.NONE))),
)
