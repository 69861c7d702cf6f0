"""`scrooge`: d + b/t, two configurations, split by throughput (as in Harpagon, Table III)."""

from functools import partial
from typing import Final

from partita_planner.configurations.dispatch import DispatchModel
from partita_planner.configurations.heuristic import HeuristicOptions, solve_heuristically
from partita_planner.configurations.module_scheduling import Dummies, SchedulingRules
from partita_planner.configurations.splitting import Criterion, GreedySplit
from partita_planner.strategies.configurations import configuration_strategy

OPTIONS: Final = HeuristicOptions(
    scheduling=SchedulingRules(DispatchModel.PER_GPU, max_configurations=2, dummies=Dummies.NONE),
    split=GreedySplit(Criterion.THROUGHPUT, proportional=True),
    reassign=0,
)

SCROOGE: Final = configuration_strategy("scrooge", partial(solve_heuristically, options=OPTIONS))
