"""The constraint that the chosen latencies keep the SLO on every path of a DAG; its rows are linear in the edges.

Each module has a finish time (a potential). Along an edge it grows by at least the downstream module's latency. This
works for any DAG, series-parallel or not.
"""

from collections.abc import Collection, Mapping
from typing import Any

import pyomo.environ as pyo

from partita_planner.session.latency import LatencyGraph
from partita_planner.solver.deadline import Deadline
from partita_planner.solver.milp import MilpAnswer, integer, solve


def add_split(model: Any, graph: LatencyGraph, options: Mapping[str, Collection[int]]) -> None:
    """Add `model.choice[module, micros]`, one of each module's latency options, so that every path keeps the SLO.

    A module whose slowest option is compatible with the slowest options of all others gets only that choice.
    """
    slowest = graph.through({module: max(micros) for module, micros in options.items()})
    choices = [
        (module, micros)
        for module, all_micros in options.items()
        for micros in (sorted(all_micros) if slowest[module] > graph.slo_micros else [max(all_micros)])
    ]
    model.choice = pyo.Var(choices, domain=pyo.Binary)
    model.finish = pyo.Var(list(graph.order), bounds=(0, 1))

    def latency(module: str) -> Any:
        if module in graph.fixed:
            return graph.fixed[module] / graph.slo_micros
        return sum(micros / graph.slo_micros * model.choice[m, micros] for m, micros in choices if m == module)

    model.one_choice = pyo.Constraint(
        list(options), rule=lambda m, module: sum(m.choice[key] for key in choices if key[0] == module) == 1
    )
    model.first = pyo.Constraint(list(graph.order), rule=lambda m, module: m.finish[module] >= latency(module))
    model.later = pyo.Constraint(
        list(graph.edges),
        rule=lambda m, upstream, module: m.finish[module] >= m.finish[upstream] + latency(module),
    )


def allowed(model: Any, module: str, micros: int) -> Any:
    """An expression: 1 if the module's choice admits a latency of `micros`, else 0."""
    return sum(model.choice[key] for key in model.choice if key[0] == module and key[1] >= micros)


def solve_split(
    model: Any, graph: LatencyGraph, deadline: Deadline, *, relative_gap: float, warm_start: bool = False
) -> MilpAnswer:
    """Solve a model whose choices keep the SLO to the microsecond.

    HiGHS's tolerance is a few millionths of the SLO. A set of choices that exceeds the SLO within it is excluded by a
    cut, and the model is solved again.
    """
    model.too_slow = pyo.ConstraintList()
    while True:
        answer = solve(model, deadline, relative_gap=relative_gap, warm_start=warm_start)
        if not answer.found:
            return answer
        chosen = [key for key in model.choice if integer(model.choice[key]) == 1]
        if graph.keeps_slo(dict(chosen)):
            return answer
        model.too_slow.add(sum(model.choice[key] for key in chosen) <= len(chosen) - 1)
