"""Which capacity of a module is left after a loss, and the constraints that it suffices.

    c[t]      capacity of template t, as a share of its module's demand, 0..1
    g[l, t]   the same after loss l, at most c[t]

    sum of g[l] over a module's templates >= served share * level        for every loss l

Of one replica of stage s of t, with v[t, s] = 1 only if another one is left:

    g <= v,    capacity needed * g <= (n[t, s] - v) * (what one replica serves),    other templates keep c

Of a pool, templates with a stage on it keep nothing, and the others keep c.

Every stage of a template in use, with u[t] = 1, has the fewest replicas that are allowed:

    c <= u,    n[t, s] >= fewest * u[t]
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyomo.environ as pyo

from partita_api.session.autoscaling import AvailabilityGoal, Loss
from partita_planner.allocation.deployments import ModuleDeployments, TemplateDeployment
from partita_planner.templates.templates import Template


@dataclass(frozen=True)
class Remaining:
    """What a module serves after a loss."""

    deployment: int
    """Index of a deployment that is hit."""
    stage: int
    """Index of a stage that is hit."""
    throughput: float
    """Samples per second that are left."""


@dataclass(frozen=True)
class LossMargin:
    """The losses that deployments survive."""

    loss: Loss
    served_share: float
    """Share of the demand that the rest serves."""
    min_replicas: int
    """Fewest replicas of every stage."""

    @classmethod
    def of(cls, availability: AvailabilityGoal | None) -> "LossMargin | None":
        """The margin that a session declares; None if it declares none."""
        if availability is None:
            return None
        return cls(availability.survive_loss, availability.served_share.fraction, availability.min_replicas)

    def after_losses(self, deployments: Sequence[TemplateDeployment]) -> Iterator[Remaining]:
        """What is left of one module's deployments after each loss."""
        whole = sum(deployment.throughput for deployment in deployments)
        for d, deployment in enumerate(deployments):
            for s, stage in enumerate(deployment.template.stages):
                if self.loss is Loss.REPLICA:
                    fewer = [count - (position == s) for position, count in enumerate(deployment.replicas)]
                    yield Remaining(d, s, whole - deployment.throughput + deployment.template.throughput(fewer))
                else:
                    yield Remaining(d, s, sum(o.throughput for o in deployments if not _uses(o.template, stage.pool)))

    def guaranteed(self, deployments: Sequence[TemplateDeployment]) -> float:
        """The demand that one module's deployments serve, and of which the share is served after every loss."""
        if any(min(deployment.replicas) < self.min_replicas for deployment in deployments):
            return 0.0
        whole = sum(deployment.throughput for deployment in deployments)
        least = min((left.throughput for left in self.after_losses(deployments)), default=0.0)
        return min(whole, least / self.served_share) if self.served_share else whole

    def others(self, templates: Sequence[Template]) -> tuple[tuple[Template, ...], ...]:
        """For each loss that hits whole templates, those that it does not hit."""
        if self.loss is Loss.REPLICA:
            return ()
        pools = sorted({stage.pool for template in templates for stage in template.stages})
        return tuple(tuple(t for t in templates if not _uses(t, pool)) for pool in pools)

    def with_reserve(self, deployments: ModuleDeployments) -> ModuleDeployments | None:
        """The deployments with replicas that make up for a lost one; None if other losses have to be survived."""
        if self.loss is not Loss.REPLICA:
            return None
        return ModuleDeployments(
            {module: tuple(map(self._with_one_more, group)) for module, group in deployments.items()}
        )

    def _with_one_more(self, deployment: TemplateDeployment) -> TemplateDeployment:
        counts = tuple(max(self.min_replicas, count + 1) for count in deployment.replicas)
        return TemplateDeployment(deployment.template, counts)


def guaranteed(deployments: Sequence[TemplateDeployment], margin: LossMargin | None) -> float:
    """Samples per second that one module's deployments serve, by `margin` also after a loss."""
    if margin is None:
        return sum(deployment.throughput for deployment in deployments)
    return margin.guaranteed(deployments)


def add_margin(
    model: Any, margin: LossMargin, templates: Mapping[tuple[str, int], Template], served: Mapping[Any, float]
) -> None:
    """Add the constraints to a model with variables f, n and level.

    `served` is what a replica of each stage serves, as a share of its module's demand.
    """
    model.c = pyo.Var(list(templates), bounds=(0, 1))
    model.within_c = pyo.Constraint(list(templates), rule=lambda m, *key: m.f[key] <= m.c[key])
    model.has_c = pyo.Constraint(list(served), rule=lambda m, *key: m.c[key[:2]] <= m.n[key] * served[key])
    if margin.min_replicas > 1:
        model.u = pyo.Var(list(templates), domain=pyo.Binary)
        model.in_use = pyo.Constraint(list(templates), rule=lambda m, *key: m.c[key] <= m.u[key])
        model.fewest = pyo.Constraint(list(served), rule=lambda m, *key: m.n[key] >= margin.min_replicas * m.u[key[:2]])
    if margin.loss is Loss.REPLICA:
        _add_replica_losses(model, margin, templates, served)
    else:
        _add_pool_losses(model, margin, templates)


def start_margin(model: Any, key: tuple[str, int], capacity: Sequence[float], replicas: Sequence[int]) -> None:
    """Set the variables of a template in use, as the start of a search.

    `capacity` is what one replica of each stage serves, as a share of the module's demand.
    """
    whole = min(1.0, *(n * one for n, one in zip(replicas, capacity, strict=True)))
    model.c[key].set_value(whole)
    if hasattr(model, "u"):
        model.u[key].set_value(1)
    if hasattr(model, "v"):
        for s, (n, one) in enumerate(zip(replicas, capacity, strict=True)):
            model.v[*key, s].set_value(int(n > 1))
            model.g[*key, s].set_value(min(whole, (n - 1) * one))


def _add_replica_losses(
    model: Any, margin: LossMargin, templates: Mapping[tuple[str, int], Template], served: Mapping[Any, float]
) -> None:
    model.g = pyo.Var(list(served), bounds=(0, 1))
    model.v = pyo.Var(list(served), domain=pyo.Binary)
    model.kept = pyo.Constraint(list(served), rule=lambda m, *key: m.g[key] <= m.c[key[:2]])
    model.another = pyo.Constraint(list(served), rule=lambda m, *key: m.g[key] <= m.v[key])
    model.one_less = pyo.Constraint(list(served), rule=lambda m, *key: m.g[key] <= (m.n[key] - m.v[key]) * served[key])
    model.capacities = pyo.Expression(
        sorted({module for module, _ in templates}),
        rule=lambda m, module: sum(m.c[key] for key in templates if key[0] == module),
    )
    model.survives = pyo.Constraint(
        list(served),
        rule=lambda m, *key: m.capacities[key[0]] - m.c[key[:2]] + m.g[key] >= margin.served_share * m.level,
    )


def _add_pool_losses(model: Any, margin: LossMargin, templates: Mapping[tuple[str, int], Template]) -> None:
    hit = sorted({(module, stage.pool) for (module, _), template in templates.items() for stage in template.stages})

    def survives(m: Any, module: str, pool: str) -> Any:
        kept = [m.c[key] for key, template in templates.items() if key[0] == module and not _uses(template, pool)]
        return margin.served_share * m.level <= sum(kept)

    model.survives = pyo.Constraint(hit, rule=survives)


def _uses(template: Template, pool: str) -> bool:
    return any(stage.pool == pool for stage in template.stages)
