"""`partita`: the optimum over all templates, stages and vGPU sizes that the session allows."""

from dataclasses import replace
from typing import Final

from partita_planner.configurations.spread import least_occupancy
from partita_planner.strategies.strategy import Strategy
from partita_planner.task.optimum import best_plan

PARTITA: Final = Strategy(
    "partita",
    restrict=lambda task: replace(task, pooled=True),
    solve=best_plan,
    holds_baseline=True,
    survives_losses=True,
    solve_workload=least_occupancy,
)
