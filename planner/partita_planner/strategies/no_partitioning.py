"""`no-partitioning`: the best plan with whole models on whole GPUs (NP in PPipe, section 7.1)."""

from typing import Final

from partita_planner.strategies.strategy import Strategy
from partita_planner.task.optimum import best_plan
from partita_planner.task.task import Task

NO_PARTITIONING: Final = Strategy(
    "no-partitioning", restrict=Task.without_partitioning, solve=best_plan, survives_losses=True
)
