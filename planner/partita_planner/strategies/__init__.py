"""Planning strategies by name, one in each file.

May import `allocation`, `configurations`, `problem`, `session`, `solver`, `task` and `templates`.
"""

from collections.abc import Mapping
from typing import Final

from partita_planner.strategies.clipper import CLIPPER
from partita_planner.strategies.dart_r import DART_R
from partita_planner.strategies.harpagon import HARPAGON
from partita_planner.strategies.inferline import INFERLINE
from partita_planner.strategies.nexus import NEXUS
from partita_planner.strategies.no_partitioning import NO_PARTITIONING
from partita_planner.strategies.optimal import OPTIMAL
from partita_planner.strategies.partita import PARTITA
from partita_planner.strategies.piccolo import PICCOLO
from partita_planner.strategies.ppipe import PPIPE
from partita_planner.strategies.scrooge import SCROOGE
from partita_planner.strategies.strategy import Strategy

STRATEGIES: Final[Mapping[str, Strategy]] = {
    s.name: s
    for s in (PARTITA, NO_PARTITIONING, PPIPE, DART_R, HARPAGON, PICCOLO, NEXUS, SCROOGE, INFERLINE, CLIPPER, OPTIMAL)
}
