"""Brute force over the plans of small problems that survive losses. Written from the definitions alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import inf

from tests.planner.problems.oracle import RawTemplate, every_template, gpus

from partita_api.session.autoscaling import AvailabilityGoal, Loss
from partita_planner.problem import PlanningProblem

Vgpus = tuple[tuple[tuple[str, int], int], ...]


@dataclass(frozen=True)
class Option:
    """One way to serve a module."""

    latency: int
    cost: float
    vgpus: Vgpus
    serves: float
    lost: float
    """The most samples per second that a loss of one replica costs."""
    without: tuple[float, ...]
    """Samples per second without each pool."""

    def guaranteed(self, availability: AvailabilityGoal) -> float:
        """The demand that it serves, and of which the share is served after a loss."""
        share = availability.served_share.fraction
        left = min(self.without) if availability.survive_loss is Loss.POOL else self.serves - self.lost
        return min(self.serves, left / share) if share else self.serves

    def dominates(self, other: "Option") -> bool:
        """Of the same vGPUs."""
        return (
            self.latency <= other.latency
            and self.serves >= other.serves
            and self.lost <= other.lost
            and all(one >= two for one, two in zip(self.without, other.without, strict=True))
        )


def every_option(
    problem: PlanningProblem, module: str, rate: float, most_latency: int, enough: float = inf
) -> list[Option]:
    """All ways to serve a module that no other one dominates; templates join until `enough` is guaranteed."""
    availability = problem.spec.availability
    assert availability is not None, "the session survives losses"
    pools = {pool.name: pool.gpus for pool in problem.pools}
    names = sorted(pools)
    found: dict[Vgpus, list[Option]] = {(): [Option(0, 0.0, (), 0.0, 0.0, (0.0,) * len(names))]}
    for template in every_template(problem, module, rate):
        if template.latency > most_latency:
            continue
        additions = list(_additions(template, pools, availability.min_replicas))
        for option in [o for group in found.values() for o in group]:
            if option.guaranteed(availability) >= enough:
                continue
            for more in additions:
                vgpus = _joined(option.vgpus, more.vgpus)
                if any(count > pools[name] for name, count in gpus(vgpus).items()):
                    continue
                used = {pool for (pool, _), _ in more.vgpus}
                made = Option(
                    max(option.latency, more.latency),
                    option.cost + more.cost,
                    tuple(sorted(vgpus.items())),
                    option.serves + more.serves,
                    max(option.lost, more.lost),
                    tuple(w + more.serves * (n not in used) for w, n in zip(option.without, names, strict=True)),
                )
                group = found.setdefault(made.vgpus, [])
                if not any(o.dominates(made) for o in group):
                    group[:] = [o for o in group if not made.dominates(o)]
                    group.append(made)
    return [o for group in found.values() for o in group]


def least_cost(problem: PlanningProblem) -> float:
    """Price per hour of the cheapest plan for a chain of models; infinite if there is none."""
    availability = problem.spec.availability
    assert availability is not None, "the session survives losses"
    needed = problem.rate / (1 - problem.spec.planner.headroom_percent / 100)
    slo = problem.spec.slo.latency_ms * 10 * (100 - problem.spec.planner.margin_percent)
    pools = {pool.name: pool.gpus for pool in problem.pools}
    plans: dict[tuple[int, Vgpus], float] = {(0, ()): 0.0}
    for module in problem.spec.modules:
        options = every_option(problem, module.name, problem.rate, slo, needed)
        enough = [o for o in options if o.guaranteed(availability) >= needed * (1 - 1e-9)]
        joined: dict[tuple[int, Vgpus], float] = {}
        for ((latency, taken), cost), option in product(plans.items(), enough):
            vgpus = _joined(taken, option.vgpus)
            if latency + option.latency > slo or any(count > pools[name] for name, count in gpus(vgpus).items()):
                continue
            key = latency + option.latency, tuple(sorted(vgpus.items()))
            joined[key] = min(joined.get(key, inf), cost + option.cost)
        plans = joined
    return min(plans.values(), default=inf)


def _additions(template: RawTemplate, pools: Mapping[str, int], fewest: int) -> Iterator[Option]:
    """The template with all numbers of replicas that the pools allow."""
    for counts in product(*(range(fewest, pools[s.pool] * s.divisor + 1) for s in template.stages)):
        rates = [stage.rate for stage in template.stages]
        serves = min(n * rate for n, rate in zip(counts, rates, strict=True))
        left = min((n - 1) * rate for n, rate in zip(counts, rates, strict=True))
        vgpus: dict[tuple[str, int], int] = {}
        for n, stage in zip(counts, template.stages, strict=True):
            vgpus[stage.pool, stage.divisor] = vgpus.get((stage.pool, stage.divisor), 0) + n
        cost = sum(n * stage.price for n, stage in zip(counts, template.stages, strict=True))
        yield Option(template.latency, cost, tuple(vgpus.items()), serves, serves - min(serves, left), ())


def _joined(one: Vgpus, other: Vgpus) -> dict[tuple[str, int], int]:
    vgpus = dict(one)
    for key, count in other:
        vgpus[key] = vgpus.get(key, 0) + count
    return vgpus
