"""Plans with fewer size classes: samples of a class without replicas of its own are padded to the next larger one."""

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

from partita_api.fields.quantity import Percent
from partita_api.pipelineplan import ModulePlan, PipelinePlanSpec
from partita_api.session.module import Module
from partita_api.session.size_classes import size_classes
from partita_api.session.sizes import Size
from partita_planner.problem import PlanningProblem
from partita_planner.task.assembly import inputs_digest, quantity


def with_fewer_classes(problem: PlanningProblem) -> Iterator[PlanningProblem]:
    """The problem without one of its size classes, or without one and all smaller ones of its module.

    Their samples are those of the next larger class. The problem whose missing classes are rarest comes first.
    """
    modules = problem.spec.modules
    shares = [_shares(module) for module in modules]
    runs = [
        (sum(each[first:end]), m, first, end)
        for m, each in enumerate(shares)
        for end in range(1, len(each))
        for first in dict.fromkeys((end - 1, 0))
    ]
    for _, m, first, end in sorted(runs):
        fewer = (*modules[:m], _without(modules[m], first, end), *modules[m + 1 :])
        yield replace(problem, spec=problem.spec.model_copy(update={"modules": fewer}))


def with_padded_classes(plan: PipelinePlanSpec, problem: PlanningProblem) -> PipelinePlanSpec:
    """A plan for fewer size classes as one for `problem`, in which the others are padded. Its explanation says so."""
    planned = {module.name: module for module in plan.modules}
    modules = tuple(each for module in problem.spec.modules for each in _with_padded(module, planned))
    padded = ", ".join(f"{module.name} to {module.padded_to}" for module in modules if module.padded_to is not None)
    said = f"Size classes without replicas of their own are padded: {padded}. {plan.solution.explanation}".rstrip()
    solution = plan.solution.model_copy(update={"explanation": said})
    return plan.model_copy(update={"modules": modules, "solution": solution, "inputs_digest": inputs_digest(problem)})


def _shares(module: Module) -> list[Decimal]:
    """The shares of a module's size classes in percent; empty without classes."""
    if module.sizes is None:
        return []
    given = [Decimal(size.share.removesuffix("%")) for size in module.sizes if size.share is not None]
    if given:
        return given
    equal = round(Decimal(100) / len(module.sizes), 4)
    return [*[equal] * (len(module.sizes) - 1), 100 - equal * (len(module.sizes) - 1)]


def _without(module: Module, first: int, end: int) -> Module:
    """The module without some size classes in a row; the next larger one has their shares, too."""
    assert module.sizes is not None
    shares = _shares(module)
    together = sum(shares[first : end + 1])
    sizes = (*module.sizes[:first], *module.sizes[end:])
    kept = (*shares[:first], together, *shares[end + 1 :])
    fewer = tuple(Size(size=size.size, share=Percent(f"{share:f}%")) for size, share in zip(sizes, kept, strict=True))
    return module.model_copy(update={"sizes": fewer})


def _with_padded(module: Module, planned: dict[str, ModulePlan]) -> list[ModulePlan]:
    """The plans of a module's size classes, the smallest first."""
    classes = size_classes(module)
    rate = sum(float(planned[each.name].rate) for each in classes if each.name in planned)
    found: list[ModulePlan] = []
    for each in reversed(classes):
        own = planned.get(each.name)
        if own is None:
            larger = found[-1]
            own = ModulePlan(
                name=each.name,
                rate=quantity(rate * each.share),
                budget_micros=larger.budget_micros,
                padded_to=larger.padded_to or larger.name,
            )
        found.append(own)
    return found[::-1]
