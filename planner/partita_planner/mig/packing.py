"""Exact packing: which layouts serve a load on the fewest GPUs, or the most of a load on given GPUs.

Every GPU has one of the few maximal layouts, so their numbers n_l are the only placement variables:

    sum_k T_wk * y_wk >= z * rate_w                for each workload w
    sum_{w of m} y_wk <= N_mk                      for each model m and profile k
    sum_m N_mk <= sum_l count_lk * n_l             for each profile k
    n, N integer; y, z >= 0

with T_wk the throughput of one slice k that does only w, y_wk the slices' worth of time that w gets, and N_mk the
slices that have model m loaded. The fewest GPUs: z = 1, least sum n. The most throughput: sum n given, most z.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, inf, isfinite
from typing import Any, Final

import pyomo.environ as pyo

from partita_planner.mig.errors import BadDemandError
from partita_planner.mig.layouts import Layout, maximal_layouts
from partita_planner.mig.products import Product
from partita_planner.solver.deadline import Deadline
from partita_planner.solver.milp import integer, solve
from partita_planner.solver.tolerances import FEASIBILITY

MAX_GPUS: Final = 100_000
LEAST_TIME: Final = 1e-4
"""The least slice time of every workload: with less, HiGHS would accept 0 slices within its tolerance."""


@dataclass(frozen=True)
class BatchWorkload:
    """The queries of one batch size of a model."""

    model: str
    """Slices are loaded with one model; workloads of one model share them."""
    rate: float
    """Queries per second."""
    throughput: Mapping[str, float]
    """Queries per second of one slice, by profile; a profile that is too small or too slow is not in it."""
    batch: int = 1
    """Samples in each query."""

    def __str__(self) -> str:
        return f"{self.model} (batch {self.batch})"


@dataclass(frozen=True)
class Packing:
    """Layouts of GPUs, and what their slices do."""

    product: Product
    layouts: tuple[tuple[Layout, int], ...]
    """Layouts and how many GPUs have each."""
    instances: Mapping[tuple[str, str], int]
    """Slices in use by (model, profile)."""
    time: Mapping[tuple[str, int, str], float]
    """Slices' worth of time by (model, batch size, profile)."""
    scale: float
    """The multiple of the load that is served."""
    bound: float
    """Proven: no packing has fewer GPUs; or, with GPUs given, none serves a larger multiple of the load."""

    @property
    def gpus(self) -> int:
        """GPUs that are cut."""
        return sum(count for _, count in self.layouts)

    @property
    def slices(self) -> dict[str, int]:
        """Slices by profile, whether in use or not."""
        totals: dict[str, int] = {}
        for layout, gpus in self.layouts:
            for name, count in layout.counts.items():
                totals[name] = totals.get(name, 0) + gpus * count
        return {s.name: totals[s.name] for s in self.product.slices if s.name in totals}

    @property
    def spare(self) -> dict[str, int]:
        """Slices that are not in use, by profile; the layouts include them."""
        used: dict[str, int] = {}
        for (_, name), count in self.instances.items():
            used[name] = used.get(name, 0) + count
        return {name: count - used.get(name, 0) for name, count in self.slices.items() if count > used.get(name, 0)}


class NoPackingReason(StrEnum):
    """Why there is no packing."""

    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    TIME_LIMIT = "TimeLimit"


@dataclass(frozen=True)
class NoPacking:
    """Why there is no packing, and what would make one possible."""

    reason: NoPackingReason
    message: str
    gpus_missing: int = 0


def requested_slices(requested: Mapping[str, int]) -> tuple[BatchWorkload, ...]:
    """Workloads that need exactly so many slices of each profile."""
    for name, count in requested.items():
        if count < 0:
            raise BadDemandError(f"{count} slices {name} are requested; give a number of 0 or more")
    return tuple(BatchWorkload(name, float(count), {name: 1.0}) for name, count in requested.items() if count)


def fewest_gpus(
    product: Product, workloads: Sequence[BatchWorkload], deadline: Deadline, *, at_most: int | None = None
) -> Packing | NoPacking:
    """The fewest GPUs that serve all `workloads`. Raises MigError for bad input."""
    check_workloads(product, workloads)
    model, layouts = _model(product, workloads)
    model.enough = pyo.Constraint(range(len(workloads)), rule=lambda m, w: _enough(m, w, workloads[w], 1))
    model.objective = pyo.Objective(expr=pyo.quicksum(model.gpus.values()))
    answer = solve(model, deadline)
    if not answer.found:
        return _out_of_time()
    found = _packing(product, workloads, model, layouts, ceil((answer.bound or 0.0) - FEASIBILITY), most=1.0)
    if at_most is not None and found.gpus > at_most:
        missing = found.gpus - at_most
        return NoPacking(
            NoPackingReason.INSUFFICIENT_CAPACITY,
            f"The load needs {found.gpus} GPUs of {product.name}, and there are {at_most}: "
            f"add {missing}, or lower the load.",
            missing,
        )
    return found


def most_served(
    product: Product, workloads: Sequence[BatchWorkload], gpus: int, deadline: Deadline
) -> Packing | NoPacking:
    """The largest multiple of all `workloads` that `gpus` GPUs serve. Raises MigError for bad input."""
    check_workloads(product, workloads)
    if not 1 <= gpus <= MAX_GPUS:
        raise BadDemandError(f"there are {gpus} GPUs to cut; give 1 to {MAX_GPUS}")
    model, layouts = _model(product, workloads)
    model.scale = pyo.Var(domain=pyo.NonNegativeReals)
    model.enough = pyo.Constraint(range(len(workloads)), rule=lambda m, w: _enough(m, w, workloads[w], m.scale))
    model.all_gpus = pyo.Constraint(expr=pyo.quicksum(model.gpus.values()) == gpus)
    model.objective = pyo.Objective(expr=model.scale, sense=pyo.maximize)
    answer = solve(model, deadline)
    if answer.infeasible:
        return _too_few_for_all(product, workloads, gpus, deadline)
    if not answer.found:
        return _out_of_time()
    return _packing(product, workloads, model, layouts, answer.bound if answer.bound is not None else inf, most=inf)


def check_workloads(product: Product, workloads: Sequence[BatchWorkload]) -> None:
    """Raises BadDemandError or UnknownSliceError unless every workload is valid and has a slice to run on."""
    if not workloads:
        raise BadDemandError("there is no load; give at least one workload with a rate above 0")
    if len({(workload.model, workload.batch) for workload in workloads}) < len(workloads):
        raise BadDemandError(f"each batch size of a model is given once; given are {', '.join(map(str, workloads))}")
    for workload in workloads:
        if not (isfinite(workload.rate) and workload.rate > 0):
            raise BadDemandError(f"{workload} has a rate of {workload.rate} queries/s; give one above 0")
        if not workload.throughput:
            raise BadDemandError(
                f"{workload} has no slice that it can run on: measure it on a larger one, or loosen its SLO"
            )
        for name, throughput in workload.throughput.items():
            product.slice(name)
            if not (isfinite(throughput) and throughput > 0):
                raise BadDemandError(f"{workload} on {name}: throughput {throughput} must be above 0")


def _model(product: Product, workloads: Sequence[BatchWorkload]) -> tuple[Any, tuple[Layout, ...]]:
    """The model without the load rows and the objective."""
    layouts = maximal_layouts(product)
    model = pyo.ConcreteModel()
    pairs = [(w, name) for w, workload in enumerate(workloads) for name in workload.throughput]
    loaded = sorted({(workloads[w].model, name) for w, name in pairs})
    model.gpus = pyo.Var(range(len(layouts)), domain=pyo.NonNegativeIntegers)
    model.instances = pyo.Var(loaded, domain=pyo.NonNegativeIntegers)
    model.time = pyo.Var(pairs, domain=pyo.NonNegativeReals)
    model.within_instances = pyo.Constraint(
        loaded,
        rule=lambda m, owner, name: (
            sum(m.time[w, k] for w, k in pairs if k == name and workloads[w].model == owner) <= m.instances[owner, name]
        ),
    )
    model.within_layouts = pyo.Constraint(
        sorted({name for _, name in loaded}),
        rule=lambda m, name: (
            sum(m.instances[owner, k] for owner, k in loaded if k == name)
            <= sum(layout.counts.get(name, 0) * m.gpus[i] for i, layout in enumerate(layouts))
        ),
    )
    model.least = pyo.Constraint(
        range(len(workloads)), rule=lambda m, w: sum(m.time[i, name] for i, name in pairs if i == w) >= LEAST_TIME
    )
    return model, layouts


def _enough(model: Any, index: int, workload: BatchWorkload, scale: Any) -> Any:
    """The row of the load, in units of slices or of the rate, whichever is less: HiGHS' tolerance is 1e-6 of that."""
    unit = min(workload.rate, max(workload.throughput.values()))
    served = sum(rate / unit * model.time[index, name] for name, rate in workload.throughput.items())
    return served >= workload.rate / unit * scale


def _packing(
    product: Product,
    workloads: Sequence[BatchWorkload],
    model: Any,
    layouts: Sequence[Layout],
    bound: float,
    most: float,
) -> Packing:
    """The solution in whole numbers, up to the `most` multiple of the load.

    What is served is counted from the whole numbers, not taken from the solver.
    """
    raw = {key: max(0.0, float(pyo.value(variable))) for key, variable in model.time.items()}
    for owner, name in model.instances:
        mine = [key for key in raw if (workloads[key[0]].model, key[1]) == (owner, name)]
        total, whole = sum(raw[key] for key in mine), integer(model.instances[owner, name])
        raw |= {key: raw[key] * whole / total for key in mine if total > whole}
    served = [sum(w.throughput[name] * raw[i, name] for name in w.throughput) / w.rate for i, w in enumerate(workloads)]
    scale = min(*served, most)
    time = {
        (workloads[i].model, workloads[i].batch, name): amount * scale / served[i]
        for (i, name), amount in raw.items()
        if amount * scale > 0
    }
    busy = {pair: sum(t for (owner, _, name), t in time.items() if (owner, name) == pair) for pair in model.instances}
    used = [(layout, integer(model.gpus[i])) for i, layout in enumerate(layouts)]
    return Packing(
        product=product,
        layouts=tuple((layout, count) for layout, count in used if count),
        instances={pair: max(1, ceil(total - FEASIBILITY)) for pair, total in busy.items() if total > 0},
        time=time,
        scale=scale,
        bound=bound,
    )


def _out_of_time() -> NoPacking:
    return NoPacking(NoPackingReason.TIME_LIMIT, "No packing was found in time. Allow more time, or give fewer models.")


def _too_few_for_all(product: Product, workloads: Sequence[BatchWorkload], gpus: int, deadline: Deadline) -> NoPacking:
    """The refusal, with the number of GPUs that give every workload a slice."""
    hardly_any = [replace(w, rate=LEAST_TIME * max(w.throughput.values())) for w in workloads]
    needed = fewest_gpus(product, hardly_any, deadline)
    if isinstance(needed, NoPacking):
        return needed
    return NoPacking(
        NoPackingReason.INSUFFICIENT_CAPACITY,
        f"A slice for each model needs {needed.gpus} GPUs of {product.name}, and there are {gpus}: "
        f"add {needed.gpus - gpus}, or leave models out.",
        needed.gpus - gpus,
    )
