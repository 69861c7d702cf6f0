"""Why there is no plan, and what would make one possible; every figure is computed, none is guessed."""

from dataclasses import replace
from math import ceil, floor

from partita_planner.allocation import Aim, Demand, gpus_missing
from partita_planner.deadline import Deadline
from partita_planner.problem import NoPlan, NoPlanReason
from partita_planner.search import Found, Search, search
from partita_planner.task import Task
from partita_planner.throughput import most_throughput

MAX_ROUNDS = 20


def missing_inputs(task: Task) -> NoPlan | None:
    """No pools, or a model without a profile or a fitting vGPU on any of them; None if each has some template."""
    usable = [pool.name for pool in task.problem.pools if pool.gpus > 0]
    if not usable:
        names = ", ".join(pool.name for pool in task.problem.pools)
        found = f"its pools ({names}) have no GPU free" if names else "it has no pool"
        return NoPlan(
            NoPlanReason.NO_POOLS,
            f"The session cannot be placed: {found}. Add nodes, lower what other sessions take, or name other pools "
            f"in spec.pools or spec.poolSelector.",
        )
    for module, classes in task.classes.items():
        where = ", ".join(usable)
        if not classes:
            return NoPlan(
                NoPlanReason.NO_POOLS,
                f"Model {module!r} has no profile on any pool with a GPU free ({where}). Wait until it is profiled, "
                f"or let the session use a pool on which it is.",
            )
        most = task.problem.spec.planner.max_batch_size
        least = min(size for c in classes for size in c.profile.batch_sizes)
        if least > most:
            return NoPlan(
                NoPlanReason.INVALID_SESSION,
                f"Model {module!r} was profiled for batches of {least} and more, but planner.maxBatchSize is {most}: "
                f"raise it to {least}, or profile smaller batches.",
            )
        if task.fastest_micros(module) is None:
            return NoPlan(
                NoPlanReason.NO_POOLS,
                f"Model {module!r} does not fit the memory of any pool ({where}) in {task.max_stages} stages: use a "
                f"pool with more memory, or raise planner.maxStages.",
            )
    return None


def slo_too_tight(task: Task) -> NoPlan | None:
    """The SLO is below what the fastest templates take on some path; None if it is not."""
    fastest = {module: task.fastest_micros(module) or 0 for module in task.classes}
    longest = int(task.graph.longest(fastest))
    if longest <= task.graph.slo_micros:
        return None
    spec = task.problem.spec
    smallest = ceil(longest / (10 * (100 - spec.planner.margin_percent)))
    path = " -> ".join(task.graph.critical_path(fastest))
    return NoPlan(
        NoPlanReason.SLO_TOO_TIGHT,
        f"The SLO of {spec.slo.latency_ms} ms leaves {task.graph.slo_micros / 1000:g} ms after its margin of "
        f"{spec.planner.margin_percent} %, but {path} takes at least {longest / 1000:.1f} ms on the fastest pools. Set "
        f"slo.latencyMs to {smallest} or more, lower planner.marginPercent, or add a faster pool.",
        smallest_slo_ms=smallest,
    )


def not_enough_gpus(task: Task, deadline: Deadline) -> NoPlan:
    """How many GPUs of which pools are missing for the rate, and which rate the GPUs that are there can serve."""
    missing = _gpus_missing(task, deadline.share(0.5))
    rate = _largest_rate(task, deadline)
    wanted = ", ".join(f"{count} more of {pool}" for pool, count in missing.items())
    fixes = [f"add GPUs ({wanted})" if wanted else "add GPUs", "raise slo.latencyMs"]
    if rate:
        fixes.append(f"lower the rate to {rate:g} requests/s")
    return NoPlan(
        NoPlanReason.NOT_ENOUGH_GPUS,
        f"The pools have too few GPUs for {task.problem.rate:g} requests/s within the SLO, with "
        f"{task.problem.spec.planner.headroom_percent} % of the capacity kept free: {', or '.join(fixes)}.",
        largest_rate=rate,
        gpus_missing=missing,
    )


def _gpus_missing(task: Task, deadline: Deadline) -> dict[str, int]:
    """The cheapest GPUs that the pools lack for the session's rate, by pool."""
    found = search(Search(task.demands(task.problem.rate), task.market, Aim.MISSING, task.coupled), deadline)
    return gpus_missing(found.deployments, task.market.pools) if isinstance(found, Found) else {}


def _largest_rate(task: Task, deadline: Deadline) -> float | None:
    """The largest rate found that the pools can serve with the same margins; None if there is none.

    Batches take longer to collect at a lower rate, so what the pools reach at the collection times of one rate is
    tried as the next one, until it reaches itself.
    """
    rate = task.problem.rate
    for _ in range(MAX_ROUNDS):
        demands = tuple(_per_request(d, rate) for d in task.demands(rate))
        found = most_throughput(demands, task.market, deadline, task.coupled)
        if not isinstance(found, Found):
            return None
        if found.value >= rate:
            return floor(rate * 1000) / 1000 or None
        rate = found.value
    return None


def _per_request(demand: Demand, rate: float) -> Demand:
    """A demand at `rate` as the demand of one request per second, so that the level is a rate."""
    return replace(demand, rate=demand.rate / rate, capacity=demand.capacity / rate)
