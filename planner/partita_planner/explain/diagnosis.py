"""Why there is no plan, and what would make one possible.

Every figure in a message was tried: the strategy has a plan with it. With one millisecond of SLO or one GPU less, or
one request per second more, it has none, unless the time for that check ran out. Untried figures are omitted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil, floor, inf
from typing import Final

from partita_api.session.autoscaling import Loss
from partita_planner.allocation.demand import AllocationObjective, ModuleDemand
from partita_planner.allocation.template_search import AllocationProblem, Found, search
from partita_planner.allocation.throughput import most_throughput
from partita_planner.problem import LONGEST_SLO_MS, NoPlan, NoPlanReason
from partita_planner.solver.deadline import Deadline
from partita_planner.task.task import SolveTask, Task, TaskSolution

MAX_ROUNDS: Final = 20
SEARCH_SHARE: Final = 0.5
TRIAL_SHARE: Final = 0.2
"""Share of the remaining time for one trial, which needs any plan, not the best."""
MOST_GPUS: Final = 1_000_000
"""Of one pool; more cannot be declared."""
A_LITTLE: Final = 1e-3
"""Requests per second that need no more than one GPU of each stage."""


def missing_inputs(task: Task) -> NoPlan | None:
    """Refuses a task without pools, or with a model that no pool can run; None if each model can run.

    If pools whose accelerators are all in use can run the models, the capacity is what is missing.
    """
    refusal = _unusable(task)
    occupied = {pool.name: 1 for pool in task.problem.pools if pool.gpus < 1}
    if refusal is None or not occupied or _unusable(task.with_gpus(occupied)) is not None:
        return refusal
    return replace(refusal, reason=NoPlanReason.INSUFFICIENT_CAPACITY)


def _unusable(task: Task) -> NoPlan | None:
    """Refuses a task if the pools with free accelerators cannot run each model."""
    usable = [pool.name for pool in task.problem.pools if pool.gpus > 0]
    if not usable:
        names = ", ".join(pool.name for pool in task.problem.pools)
        found = f"its pools ({names}) have no free accelerator" if names else "it has no pool"
        return NoPlan(
            NoPlanReason.NO_POOLS,
            f"The session cannot be placed: {found}. Add nodes, reduce other sessions, or select other pools "
            f"with spec.pools or spec.poolSelector.",
        )
    for module, classes in task.classes.items():
        where = ", ".join(usable)
        if not classes:
            return NoPlan(
                NoPlanReason.NO_POOLS,
                f"Model {module!r} has no profile on any pool with a free accelerator ({where}). Wait until it is "
                f"profiled, or select a pool for which it has a profile.",
            )
        most = task.problem.spec.planner.max_batch_size
        least = min(size for c in classes for size in c.profile.batch_sizes)
        if least > most:
            return NoPlan(
                NoPlanReason.INVALID_SESSION,
                f"Model {module!r} was profiled for batches of {least} and more, but planner.maxBatchSize is {most}. "
                f"Raise planner.maxBatchSize to {least}, or profile smaller batches.",
            )
        if task.fastest_micros(module) is None:
            return NoPlan(
                NoPlanReason.NO_POOLS,
                f"Model {module!r} does not fit the memory of any pool ({where}) in {task.max_stages} stages. Use a "
                f"pool with more memory, or raise planner.maxStages.",
            )
        needs_another = task.margin is not None and task.margin.loss is Loss.POOL and task.margin.served_share > 0
        if needs_another and len(classes) == 1:
            return NoPlan(
                NoPlanReason.NO_POOLS,
                f"Only pool {classes[0].pool.name!r} can run model {module!r}, so the session cannot survive its loss. "
                f"Add another pool with free accelerators, or set availability.surviveLoss to Replica.",
            )
    return None


def slo_too_tight(task: Task, solve: SolveTask, deadline: Deadline) -> NoPlan | None:
    """Refuses an SLO below the latency of the fastest templates on some path; None if the SLO is long enough."""
    fastest = {module: task.fastest_micros(module) or 0 for module in task.classes}
    longest = int(task.graph.longest(fastest))
    if longest <= task.graph.slo_micros:
        return None
    spec = task.problem.spec
    least = ceil(longest / (10 * (100 - spec.planner.margin_percent)))
    smallest = _Trials(task, solve, deadline.share(0.5)).smallest_slo(least - 1)
    path = " -> ".join(task.graph.critical_path(fastest))
    return NoPlan(
        NoPlanReason.SLO_TOO_TIGHT,
        f"The SLO of {spec.slo.latency_ms} ms leaves {task.graph.slo_micros / 1000:g} ms after its margin of "
        f"{spec.planner.margin_percent} %, but {path} takes at least {longest / 1000:.1f} ms on the fastest pools. Set "
        f"slo.latencyMs to {smallest or least} or more, lower planner.marginPercent, or add a faster pool.",
        smallest_slo_ms=smallest,
    )


def not_enough_gpus(task: Task, solve: SolveTask, deadline: Deadline) -> NoPlan:
    """How many GPUs of which pools are missing, and which SLO or rate the available GPUs can serve."""
    missing = _Trials(task, solve, deadline.share(0.4)).gpus_missing()
    rate = _Trials(task, solve, deadline.share(0.5)).largest_rate()
    slo = _Trials(task, solve, deadline).smallest_slo(task.problem.spec.slo.latency_ms)
    fixes = []
    if missing:
        fixes.append(f"add accelerators ({', '.join(f'{count} more of {pool}' for pool, count in missing.items())})")
    if slo is not None:
        fixes.append(f"raise slo.latencyMs to {slo}")
    if rate is not None:
        fixes.append(f"lower the rate to {rate} requests/s")
    spec = task.problem.spec
    purpose = f"for {task.problem.rate:g} requests/s within the SLO and a headroom of {spec.planner.headroom_percent} %"
    if task.objective is AllocationObjective.THROUGHPUT:
        purpose = "to serve each model"
    if task.margin is not None:
        purpose += f" also after the loss of any {task.margin.loss.lower()} (spec.availability)"
        fixes.append("lower what availability asks for")
    advice = ", or ".join(fixes) or "add accelerators, or lower the rate"
    return NoPlan(
        NoPlanReason.INSUFFICIENT_CAPACITY,
        f"The pools have too few accelerators {purpose}. {advice[0].upper()}{advice[1:]}.",
        smallest_slo_ms=slo,
        largest_rate=rate,
        gpus_missing=missing,
    )


@dataclass(frozen=True)
class _Trials:
    """Plans a task that has no plan with changed figures, until the deadline."""

    task: Task
    solve: SolveTask
    deadline: Deadline

    def smallest_slo(self, too_small: int) -> int | None:
        """The smallest SLO in milliseconds above `too_small` with a plan; None if there is none, or no time."""
        return _least(too_small, LONGEST_SLO_MS, lambda millis: self._possible(self.task.with_slo(millis)))

    def largest_rate(self) -> int | None:
        """The largest rate in whole requests per second with a plan; None if there is none, or no time.

        Batches take longer to collect at a lower rate. So the rate that the pools reach with the collection times of
        one rate is the next rate to try, until both are equal. From above, that is the largest rate with a plan. Each
        search is exact only to its gap, and may be cut short, so neighbouring rates are tried as well.
        """
        if self.task.objective is AllocationObjective.THROUGHPUT:
            return None
        about = floor(self._highest_fixed_rate(self.deadline.share(SEARCH_SHARE)))
        asked = ceil(self.task.problem.rate)
        found = next((r for r in (about, about - 1) if r >= 1 and self._possible(self.task.with_rate(r))), None)
        return None if found is None else _most(found, asked, lambda r: self._possible(self.task.with_rate(r)))

    def gpus_missing(self) -> dict[str, int]:
        """The cheapest GPUs that the pools lack, by pool. There is no plan without all of them.

        Empty if no pool can have so many, or if time runs out.
        """
        task = self.task
        throughput = task.objective is AllocationObjective.THROUGHPUT
        ends = self.deadline.share(SEARCH_SHARE)
        rate, collected_at = (A_LITTLE, inf) if throughput else (task.problem.rate, None)
        demands = task.demands(rate, ends, collected_at)
        problem = AllocationProblem(
            demands, task.resources, AllocationObjective.MISSING, task.coupled, margin=task.margin
        )
        found = search(problem, ends)
        missing = found.deployments.missing_gpus(task.resources.pools) if isinstance(found, Found) else {}
        if any(task.resources.pools[pool].gpus + count > MOST_GPUS for pool, count in missing.items()):
            return {}
        for pool in sorted(missing):
            count = self._fewest(missing, pool)
            if count is None and throughput:
                return {}
            # If there is no time to try again, the search's own deployments are a plan with this count.
            missing[pool] = missing[pool] if count is None else count
        return {pool: count for pool, count in missing.items() if count}

    def _fewest(self, missing: Mapping[str, int], pool: str) -> int | None:
        """The fewest missing GPUs of one pool with which there is a plan, the other pools unchanged."""
        there = {name: pool.gpus for name, pool in self.task.resources.pools.items()}

        def with_missing(count: int) -> Task:
            more = {**missing, pool: count}
            return self.task.with_gpus({name: gpus + more.get(name, 0) for name, gpus in there.items()})

        return _least(-1, missing[pool], lambda count: self._possible(with_missing(count)))

    def _possible(self, task: Task) -> bool | None:
        """Whether there is a plan; None if the time ran out."""
        if self.deadline.passed:
            return None
        found = self.solve(task, self.deadline.share(TRIAL_SHARE))
        return True if isinstance(found, TaskSolution) else False if found.proven else None

    def _highest_fixed_rate(self, deadline: Deadline) -> float:
        rate = self.task.problem.rate
        for _ in range(MAX_ROUNDS):
            ends = deadline.share(SEARCH_SHARE)
            demands = tuple(_per_request(d, rate) for d in self.task.demands(rate, ends))
            margin = self.task.margin
            found = most_throughput(demands, self.task.resources, ends, self.task.coupled, margin=margin)
            if not isinstance(found, Found):
                return 0.0
            if found.value >= rate:
                return rate
            rate = found.value
        return rate


def _most(holding: int, too_much: int, holds: Callable[[int], bool | None]) -> int:
    """The largest number below `too_much` that is found to hold, from `holding` upwards; steps grow, then shrink."""
    step, growing = 1, True
    while step:
        if holding + step < too_much and holds(holding + step):
            holding += step
            step = 2 * step if growing else step // 2
        else:
            growing = False
            step //= 2
    return holding


def _least(too_small: int, most: int, holds: Callable[[int], bool | None]) -> int | None:
    """The least number above `too_small` and up to `most` for which `holds` is true; it is then true for all above.

    None if it is not known to be true for any number. Steps grow from `too_small`; the last step is halved. If `holds`
    returns None, the least number known to hold is the answer.
    """
    low, high = too_small, too_small + 1
    if low >= most:
        return None
    if holds(high) is True:
        return high
    if holds(most) is not True:
        return None
    best, step = most, 1
    while high < best:
        answer = holds(high)
        if answer is None:
            return best
        if answer:
            best = high
            break
        step *= 4
        low, high = high, min(best, high + step)
    while best - low > 1:
        middle = (low + best) // 2
        answer = holds(middle)
        if answer is None:
            return best
        low, best = (low, middle) if answer else (middle, best)
    return best


def _per_request(demand: ModuleDemand, rate: float) -> ModuleDemand:
    """A demand at `rate` as the demand of one request per second: the level is then a rate."""
    return replace(demand, rate=demand.rate / rate, capacity=demand.capacity / rate)
