"""`inferline`: 2d, one configuration, greedy by cost (Piccolo, section II; in Harpagon, Table III, by throughput)."""

from functools import partial
from typing import Final

from partita_planner.configurations.dispatch import DispatchModel
from partita_planner.configurations.heuristic import HeuristicOptions, solve_heuristically
from partita_planner.configurations.module_scheduling import Dummies, SchedulingRules
from partita_planner.configurations.splitting import Criterion, GreedySplit
from partita_planner.strategies.configurations import configuration_strategy

OPTIONS: Final = HeuristicOptions(
    scheduling=SchedulingRules(DispatchModel.ROUND_ROBIN, max_configurations=1, dummies=Dummies.NONE),
    split=GreedySplit(Criterion.COST),
    reassign=0,
    concurrency=False,
)

INFERLINE: Final = configuration_strategy("inferline", partial(solve_heuristically, options=OPTIONS))
