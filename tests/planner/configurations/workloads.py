"""The papers' profiles, and builders of modules and workloads."""

from itertools import pairwise

from partita_planner.configurations.workload import Configuration, Workload, WorkloadModule


def configurations(*rows: tuple[int, float], hardware: str = "gpu", price: float = 1.0) -> tuple[Configuration, ...]:
    """Configurations from rows of <batch, seconds>."""
    return tuple(Configuration(batch, duration, hardware, price) for batch, duration in rows)


HARPAGON_M1 = configurations((2, 0.160), (4, 0.200), (8, 0.320))
HARPAGON_M3 = configurations((2, 0.100), (8, 0.250), (32, 0.800))
PICCOLO_M1 = configurations((5, 0.100), (20, 0.250), (100, 1.000))
PICCOLO_M2 = configurations((2, 0.125), (4, 0.160), (8, 8 / 30))
PICCOLO_M3 = configurations((2, 2 / 12), (4, 0.200), (8, 0.320))


def chain(slo: float, *modules: WorkloadModule) -> Workload:
    """Modules one after the other."""
    names = [module.name for module in modules]
    return Workload(modules, tuple(pairwise(names)), slo)
