"""Solves the formulation over thousands of templates: relaxation, exact program or restricted MILP, filter, final MILP.

1. The linear relaxation, without latency coupling, gives a bound and the duals of demands and pools. Rounded and filled
   up, it also gives a first solution.
2. For throughput with stages that own whole GPUs and latencies that are not coupled, a dynamic program gives the
   optimum if the pools are not too large for it.
3. Otherwise a MILP over the templates of least excess (`pruning`) gives a good solution. With its latencies fixed, the
   dynamic program may improve it.
4. Templates that cannot be part of a better solution are dropped, exactly. If templates beyond those of step 3 remain,
   the MILP over all remaining templates starts from the solution and proves a bound.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

import numpy as np

from partita_planner.allocation.demand import AllocationObjective, ModuleDemand
from partita_planner.allocation.deployments import (
    MAX_PIPELINES,
    ModuleDeployments,
    TemplateDeployment,
    allocated_price,
    occupancy_price,
)
from partita_planner.allocation.dynamic_program import MAX_WORK, Program
from partita_planner.allocation.filling import filled
from partita_planner.allocation.formulation import allocation_model, deployments_of, start_from
from partita_planner.allocation.latency_split import solve_split
from partita_planner.allocation.loss_margin import LossMargin, guaranteed
from partita_planner.allocation.pruning import least_excess, promising
from partita_planner.allocation.relaxation import Relaxation, relax, rounded
from partita_planner.allocation.resources import AvailableResources, missing_price
from partita_planner.session.latency import LatencyGraph, distribute_slack
from partita_planner.solver.deadline import Deadline
from partita_planner.solver.milp import solve
from partita_planner.solver.tolerances import ROUNDING
from partita_planner.templates.templates import Template, TemplateStage

RESTRICTED_TEMPLATES: Final = 60
"""Templates of each module in the restricted MILP, in addition to those that are needed for their latency."""
FINAL_TEMPLATES: Final = 300
"""Templates of each module in the final MILP; if more remain, the bound is that of the relaxation."""
EXACT_SHARE: Final = 0.7
"""Share of the remaining time for the dynamic program."""
WASTED_GPUS: Final = 0.6
"""GPUs that integrality costs each module, roughly: the dynamic program first searches within this distance."""
CLOSE: Final = 5e-4
"""A solution this close to the bound justifies only a short search for a better one: there are thousands of GPUs then,
and neither a proof nor an improvement is found soon."""
CLOSE_SHARE: Final = 0.2
"""Share of the remaining time for this short search."""


@dataclass(frozen=True)
class AllocationProblem:
    """One problem for the formulation."""

    demands: tuple[ModuleDemand, ...]
    resources: AvailableResources
    objective: AllocationObjective
    graph: LatencyGraph | None = None
    """The paths that share an SLO; None if the latencies are not coupled."""
    highest_level: float = 1.0
    """A bound on the level of AllocationObjective.THROUGHPUT."""
    margin: LossMargin | None = None
    """The losses that solutions survive. Resources then count vGPUs, or whole GPUs of templates on undivided ones."""

    def allows(self, deployments: ModuleDeployments) -> bool:
        """Whether the deployments fit the pools and a plan, and serve the demands, by `margin` also after a loss."""
        return (
            deployments.fit_a_plan
            and not deployments.missing_gpus(self.resources.pools)
            and (
                self.objective is AllocationObjective.THROUGHPUT
                or self.margin is None
                or self.level(deployments) >= 1 - ROUNDING
            )
        )

    def level(self, deployments: ModuleDeployments) -> float:
        """How many times the deployments meet the demands."""
        return min(guaranteed(deployments.get(d.module, ()), self.margin) / d.capacity for d in self.demands)

    def with_templates(self, choose: Callable[[ModuleDemand], tuple[Template, ...]]) -> "AllocationProblem":
        """The same problem with fewer templates."""
        return replace(self, demands=tuple(replace(d, templates=choose(d)) for d in self.demands))


@dataclass(frozen=True)
class Found:
    """The best solution found and what is proven about it."""

    deployments: ModuleDeployments
    value: float
    """Objective value: price per hour, or level."""
    bound: float
    """No solution has a better value."""


@dataclass(frozen=True)
class NothingFound:
    """There is no solution, or none was found in time."""

    proven: bool
    """Whether it is proven that there is none."""


def search(
    problem: AllocationProblem, deadline: Deadline, start: ModuleDeployments | None = None
) -> Found | NothingFound:
    """The best solution within the remaining time; `start` is a known solution, if any."""
    relaxation = relax(problem.demands, problem.resources, problem.objective, deadline, problem.highest_level)
    if relaxation is None:
        return NothingFound(proven=not deadline.passed)
    if problem.objective is AllocationObjective.THROUGHPUT:
        problem = replace(problem, highest_level=relaxation.bound)
    excess = {d.module: _excess(problem, relaxation, d) for d in problem.demands}

    seed = _seed(problem, relaxation, start, deadline)
    if problem.graph is None:
        best, relaxation = _exactly(problem, relaxation, excess, seed, deadline.share(EXACT_SHARE))
        if isinstance(best, Found) and best.bound <= best.value * (1 + problem.objective.relative_gap):
            return best
        seed = best
    tried = problem.with_templates(lambda d: _restricted(d, excess[d.module], problem.margin))
    deadline = _worth_its_time(problem, seed, relaxation, deadline)
    answer = _solve(tried, seed, deadline.share(0.5))
    best = _better(problem, seed, answer)
    if problem.graph is not None and isinstance(best, Found) and best.value > 0:
        best, _ = _exactly(_uncoupled(problem, best), relaxation, excess, best, deadline.share(EXACT_SHARE))
    slack = abs(relaxation.bound - best.value) * (1 + ROUNDING) if isinstance(best, Found) else inf
    left = problem.with_templates(lambda d: promising(d.templates, excess[d.module], slack))
    if not (isinstance(best, Found) and _covers(tried, left)) and not deadline.passed:
        deadline = _worth_its_time(problem, best, relaxation, deadline)
        tried = left.with_templates(lambda d: promising(d.templates, excess[d.module], inf, FINAL_TEMPLATES))
        answer = _solve(tried, best, deadline)
        best = _better(problem, best, answer)
    return _concluded(problem, best, relaxation.bound, answer if _covers(tried, left) else None)


def value_of(problem: AllocationProblem, deployments: ModuleDeployments) -> float:
    """Objective value of deployments, computed from their integers."""
    resources = problem.resources
    match problem.objective:
        case AllocationObjective.THROUGHPUT:
            return problem.level(deployments)
        case AllocationObjective.OCCUPANCY:
            return sum(occupancy_price(deployments[d.module], d, resources) for d in problem.demands)
        case AllocationObjective.ALLOCATED:
            return sum(allocated_price(deployments[d.module], resources) for d in problem.demands)
        case AllocationObjective.MISSING:
            return sum(
                missing_price(resources.pools[p]) * n for p, n in deployments.missing_gpus(resources.pools).items()
            )


def _seed(
    problem: AllocationProblem, relaxation: Relaxation, start: ModuleDeployments | None, deadline: Deadline
) -> Found | NothingFound:
    """The first solution: `start`, the rounded relaxation, or the best with one stage for each module.

    Those that were found without a margin may be far from the best one with it, so the last one is tried, too.
    """
    found: Found | NothingFound = NothingFound(proven=False)
    known = [] if start is None else [start]
    if problem.objective is AllocationObjective.THROUGHPUT and problem.graph is None:
        known.extend(_simple(problem, relaxation))
    for deployments in known:
        if problem.allows(deployments):
            found = _better(problem, found, Found(deployments, value_of(problem, deployments), relaxation.bound))
    if isinstance(found, Found) and problem.margin is None:
        return found
    simple = _solve(problem.with_templates(_one_stage), None, deadline.share(0.2))
    if isinstance(simple, Found):
        simple = replace(simple, bound=relaxation.bound)  # its own bound is that of these templates only
    return _better(problem, found, simple)


def _simple(problem: AllocationProblem, relaxation: Relaxation) -> Iterator[ModuleDeployments]:
    """Solutions without a search: the relaxation rounded, the same filled up, and one filled from no deployments."""
    begun = rounded(relaxation, problem.demands, problem.resources)
    if begun is not None:
        yield begun
    if problem.resources.whole_gpus:
        for deployments in (begun or ModuleDeployments(), ModuleDeployments()):
            if more := filled(deployments, problem.demands, problem.resources, relaxation):
                yield more


def _exactly(
    problem: AllocationProblem,
    relaxation: Relaxation,
    excess: Mapping[str, Mapping[Template, float]],
    best: Found | NothingFound,
    deadline: Deadline,
) -> tuple[Found | NothingFound, Relaxation]:
    """The dynamic program's solution, or `best`; and the relaxation with the bound that the program proves.

    The closer to the bound a solution has to be, the fewer vectors and templates remain. So the program first searches
    close to the bound, then at growing distances, until it finds a solution or proves that none is above `best`.
    """
    throughput = problem.objective is AllocationObjective.THROUGHPUT
    if not throughput or not problem.resources.whole_gpus or problem.margin is not None:
        return best, relaxation
    value = best.value if isinstance(best, Found) else 0.0
    bound = relaxation.bound
    distance = WASTED_GPUS * len(problem.demands) / sum(pool.gpus for pool in problem.resources.pools.values())
    while True:
        known = max(value, relaxation.bound * (1 - distance))
        distance *= 2
        demands = tuple(
            replace(d, templates=promising(d.templates, excess[d.module], relaxation.bound - known))
            for d in problem.demands
        )
        program = Program.of(demands, problem.resources, relaxation, known)
        if deadline.passed or program.work > MAX_WORK:
            break
        deployments, bound = program.solve(known, bound, problem.resources, deadline)
        if deployments is not None and deployments.fit_a_plan:
            best = Found(deployments, value_of(problem, deployments), bound)
            break
        if known <= value:
            break
    proven = replace(relaxation, bound=max(bound, value))
    return (replace(best, bound=max(best.value, bound)) if isinstance(best, Found) else best), proven


def _uncoupled(problem: AllocationProblem, found: Found) -> AllocationProblem:
    """The same problem with fixed budgets for the modules: the latencies of `found` plus the slack of its paths."""
    assert problem.graph is not None, "only coupled problems are uncoupled"
    budget = distribute_slack(problem.graph, found.deployments.latencies)
    within = problem.with_templates(lambda d: tuple(t for t in d.templates if t.latency_micros <= budget[d.module]))
    return replace(within, graph=None)


def _solve(problem: AllocationProblem, start: Found | NothingFound | None, deadline: Deadline) -> Found | NothingFound:
    """One MILP over all templates of `problem`."""
    if any(not d.templates for d in problem.demands):
        return NothingFound(proven=True)
    model = allocation_model(
        problem.demands,
        problem.resources,
        problem.objective,
        graph=problem.graph,
        highest_level=problem.highest_level,
        margin=problem.margin,
    )
    if isinstance(start, Found):
        start_from(model, problem.demands, problem.resources, start.deployments, problem.highest_level)
    gap, warm = problem.objective.relative_gap, isinstance(start, Found)
    if problem.graph is None:
        answer = solve(model, deadline, relative_gap=gap, warm_start=warm)
    else:
        answer = solve_split(model, problem.graph, deadline, relative_gap=gap, warm_start=warm)
    if answer.value is None:
        return NothingFound(answer.infeasible)
    deployments = deployments_of(model, problem.demands, problem.resources, problem.margin)
    if not deployments.fit_a_plan:
        return _solve(problem.with_templates(lambda d: _largest(deployments[d.module])), None, deadline)
    value = value_of(problem, deployments)
    return Found(deployments, value, value if answer.bound is None else answer.bound * problem.highest_level)


def _worth_its_time(
    problem: AllocationProblem, found: Found | NothingFound, relaxation: Relaxation, deadline: Deadline
) -> Deadline:
    """The deadline of the search for a better solution: earlier if the throughput is already close to its bound."""
    close = isinstance(found, Found) and found.value >= relaxation.bound * (1 - CLOSE)
    return deadline.share(CLOSE_SHARE) if close and problem.objective is AllocationObjective.THROUGHPUT else deadline


def _better(problem: AllocationProblem, one: Found | NothingFound, other: Found | NothingFound) -> Found | NothingFound:
    """The better of two answers."""
    if not isinstance(one, Found) or not isinstance(other, Found):
        return one if isinstance(one, Found) else other
    sign = -1 if problem.objective is AllocationObjective.THROUGHPUT else 1
    return min(one, other, key=lambda found: sign * found.value)


def _concluded(
    problem: AllocationProblem, best: Found | NothingFound, relaxed: float, complete: Found | NothingFound | None
) -> Found | NothingFound:
    """The best solution with the tightest bound: of the relaxation, or of a MILP with all promising templates."""
    if not isinstance(best, Found):
        return NothingFound(proven=isinstance(complete, NothingFound) and complete.proven)
    bounds = [relaxed, *([complete.bound] if isinstance(complete, Found) else [])]
    if problem.objective is AllocationObjective.THROUGHPUT:
        return replace(best, bound=max(best.value, min(bounds)))
    return replace(best, bound=min(best.value, max(bounds)))


def _excess(problem: AllocationProblem, relaxation: Relaxation, demand: ModuleDemand) -> dict[Template, float]:
    """What one use of each template costs beyond the relaxation, at the relaxation's prices."""
    resources = problem.resources

    def price(stage: TemplateStage) -> float:
        own = resources.price(stage) if problem.objective is AllocationObjective.ALLOCATED else 0.0
        return own + relaxation.gpu[stage.pool] * resources.gpus(stage)

    duals = np.full(len(demand.templates), relaxation.sample[demand.module])
    if problem.objective is AllocationObjective.OCCUPANCY:
        duals -= np.array([resources.sample_price(t) for t in demand.templates]) * demand.rate / demand.capacity
    most = demand.capacity * problem.highest_level
    excess = least_excess(demand.templates, most, duals, price, resources.unit_rate)
    return dict(zip(demand.templates, excess.tolist(), strict=True))


def _largest(deployments: Sequence[TemplateDeployment]) -> tuple[Template, ...]:
    """The templates that serve most, as many as a plan can hold."""
    ranked = sorted(deployments, key=lambda d: -d.throughput)
    return tuple(d.template for d in ranked[:MAX_PIPELINES])


def _one_stage(demand: ModuleDemand) -> tuple[Template, ...]:
    return tuple(t for t in demand.templates if len(t.stages) == 1)


def _restricted(
    demand: ModuleDemand, excess: Mapping[Template, float], margin: LossMargin | None
) -> tuple[Template, ...]:
    """The templates of least excess, and each template with less excess than all faster ones.

    If other templates have to survive a loss, these are the best among the others, too.
    """
    best: set[Template] = set()
    for templates in (demand.templates, *(margin.others(demand.templates) if margin is not None else ())):
        best |= set(promising(templates, excess, inf, RESTRICTED_TEMPLATES))
        least = inf
        for template in sorted(templates, key=lambda t: (t.latency_micros, excess[t])):
            if excess[template] < least:
                least = excess[template]
                best.add(template)
    return tuple(t for t in demand.templates if t in best)


def _covers(restricted: AllocationProblem, left: AllocationProblem) -> bool:
    """Whether the restricted problem had all templates that remain."""
    pairs = zip(restricted.demands, left.demands, strict=True)
    return all(set(had.templates) >= set(has.templates) for had, has in pairs)
