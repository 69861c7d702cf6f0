"""`clipper`: 2d, one configuration on one type of hardware, even split (as in Harpagon, Table III)."""

from functools import partial
from typing import Final

from partita_planner.configurations.dispatch import DispatchModel
from partita_planner.configurations.heuristic import HardwareChoice, HeuristicOptions, solve_heuristically
from partita_planner.configurations.module_scheduling import Dummies, SchedulingRules
from partita_planner.configurations.splitting import EvenSplit
from partita_planner.strategies.configurations import configuration_strategy

OPTIONS: Final = HeuristicOptions(
    scheduling=SchedulingRules(DispatchModel.ROUND_ROBIN, max_configurations=1, dummies=Dummies.NONE),
    split=EvenSplit(),
    reassign=0,
    hardware=HardwareChoice.ONE,
    concurrency=False,
)

CLIPPER: Final = configuration_strategy("clipper", partial(solve_heuristically, options=OPTIONS))
