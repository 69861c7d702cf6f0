"""`nexus`: 2d, two configurations on one type of hardware, quantized split (as in Harpagon, Table III)."""

from functools import partial
from typing import Final

from partita_planner.configurations.dispatch import DispatchModel
from partita_planner.configurations.heuristic import HardwareChoice, HeuristicOptions, solve_heuristically
from partita_planner.configurations.module_scheduling import Dummies, SchedulingRules
from partita_planner.configurations.splitting import QuantizedSplit
from partita_planner.strategies.configurations import configuration_strategy

OPTIONS: Final = HeuristicOptions(
    scheduling=SchedulingRules(DispatchModel.ROUND_ROBIN, max_configurations=2, dummies=Dummies.NONE),
    split=QuantizedSplit(interval=0.01),
    reassign=0,
    hardware=HardwareChoice.ONE,
    concurrency=False,
)

NEXUS: Final = configuration_strategy("nexus", partial(solve_heuristically, options=OPTIONS))
