"""`piccolo`: the predecessor of Harpagon, with its own dummy generator and budgets scaled to the SLO (section III).

Its concurrency dimension is that machines may share a GPU: configurations of a concurrency above 1, here vGPUs.
"""

from dataclasses import replace
from functools import partial
from typing import Final

from partita_planner.configurations.heuristic import HeuristicOptions, solve_heuristically
from partita_planner.configurations.module_scheduling import Dummies, SchedulingRules
from partita_planner.configurations.splitting import GreedySplit
from partita_planner.strategies.configurations import configuration_strategy

OPTIONS: Final = HeuristicOptions(
    scheduling=SchedulingRules(dummies=Dummies.IN_TIME),
    split=GreedySplit(proportional=True),
    reassign=None,
)

PICCOLO: Final = configuration_strategy(
    "piccolo",
    partial(solve_heuristically, options=OPTIONS),
    partial(solve_heuristically, options=replace(OPTIONS, scheduling=SchedulingRules(dummies=Dummies.NONE))),
)
