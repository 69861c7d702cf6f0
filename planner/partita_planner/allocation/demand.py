"""The input of an allocation: each module's demand, and the objective."""

from dataclasses import dataclass
from enum import Enum, auto

from partita_planner.solver.tolerances import COST_GAP, THROUGHPUT_GAP
from partita_planner.templates.templates import Template


class AllocationObjective(Enum):
    """What is optimised."""

    ALLOCATED = auto()
    """Least price of the allocated vGPUs."""
    OCCUPANCY = auto()
    """Least price of the time that vGPUs work."""
    THROUGHPUT = auto()
    """Highest level."""
    MISSING = auto()
    """Least price of GPUs beyond those of the pools."""

    @property
    def relative_gap(self) -> float:
        """Relative distance between value and bound at which a search may stop."""
        return THROUGHPUT_GAP if self is AllocationObjective.THROUGHPUT else COST_GAP


@dataclass(frozen=True)
class ModuleDemand:
    """What the pipelines of one module must be able to serve, and their templates."""

    module: str
    rate: float
    """Samples per second that arrive."""
    capacity: float
    """Samples per second that the pipelines must be able to serve: the rate and the headroom for bursts."""
    templates: tuple[Template, ...]
    complete: bool = True
    """Whether these are all templates that an optimum may need; otherwise proofs hold for these templates only."""
