"""`optimal`: the best of Harpagon's own space, by exhaustive search (Harpagon, section IV-A)."""

from functools import partial
from typing import Final

from partita_planner.configurations.full_machines import cheapest_with_full_machines
from partita_planner.strategies.configurations import configuration_strategy

OPTIMAL: Final = configuration_strategy(
    "optimal", cheapest_with_full_machines, partial(cheapest_with_full_machines, dummies=False)
)
