"""Planning strategies, each in a file of its own, by name."""

from collections.abc import Mapping
from typing import Final

from partita_planner.strategies.no_partitioning import NO_PARTITIONING
from partita_planner.strategies.partita import PARTITA
from partita_planner.strategies.strategy import Strategy

STRATEGIES: Final[Mapping[str, Strategy]] = {s.name: s for s in (PARTITA, NO_PARTITIONING)}
