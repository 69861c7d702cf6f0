"""MIG: the slices to cut GPUs into, so that they serve a load and fit the GPUs (PARIS, section IV-B).

May import `allocation.milp` and `deadline`.
"""

from typing import TYPE_CHECKING

from partita_planner.exports import lazy_exports

if TYPE_CHECKING:
    from partita_planner.mig.demand import MigDemand, ModelDemand, SliceMeasurement, pack, pack_by_paris, parse_demand
    from partita_planner.mig.errors import MigError
    from partita_planner.mig.packing import NoPacking, NoPackingReason, Packing
    from partita_planner.mig.products import ProductTable, known_products, parse_products

__all__ = [
    "MigDemand",
    "MigError",
    "ModelDemand",
    "NoPacking",
    "NoPackingReason",
    "Packing",
    "ProductTable",
    "SliceMeasurement",
    "known_products",
    "pack",
    "pack_by_paris",
    "parse_demand",
    "parse_products",
]

__getattr__ = lazy_exports(
    __name__,
    {
        **dict.fromkeys(("MigDemand", "ModelDemand", "SliceMeasurement"), "demand"),
        **dict.fromkeys(("pack", "pack_by_paris", "parse_demand"), "demand"),
        "MigError": "errors",
        **dict.fromkeys(("NoPacking", "NoPackingReason", "Packing"), "packing"),
        **dict.fromkeys(("ProductTable", "known_products", "parse_products"), "products"),
    },
)
