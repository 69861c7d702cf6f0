"""Reduces the GPUs of a plan by sharing partly idle GPUs: sub-clusters (Symphony, section 4.4).

Whole models on whole GPUs of one pool are grouped if this saves GPUs, if they fit the memory, and if each model's
budget includes a batch of another model that has just begun. With `planner.shareGpus` all models may be in one group,
else only the size classes of one module.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR
from itertools import product
from math import ceil, inf

from partita_api.inferencesession import CostModel, InferenceSessionSpec, ObjectiveType
from partita_api.module_graph import with_size_classes
from partita_api.pipelineplan import ModulePlan, PipelinePlanSpec, Stage
from partita_api.profile import Profile
from partita_api.session.execution import common_weights, weights_bytes
from partita_api.session.size_classes import size_classes
from partita_planner.problem import PlanningProblem, Pool
from partita_planner.session.latency import SECOND, collection_micros
from partita_planner.session.session_graph import module_rates
from partita_planner.solver.tolerances import ROUNDING
from partita_planner.task.assembly import quantity


@dataclass(frozen=True)
class _BatchOption:
    """A batch size of a model."""

    batch: int
    latency_micros: int
    load: float
    """GPUs that the model keeps busy, including headroom."""
    least_budget: int
    """Its latency plus the collection time of its batch."""
    dynamic_bytes: int


@dataclass(frozen=True)
class _Member:
    """A model that may share its GPUs."""

    module: ModulePlan
    stage: Stage
    options: tuple[_BatchOption, ...]
    static_bytes: int
    weights: str
    """Identifies its weights; members with the same ones, such as size classes, have them in memory once."""


@dataclass(frozen=True)
class _Group:
    """Models on the same GPUs, each with its batch size; a single model is unchanged."""

    members: tuple[_Member, ...]
    options: tuple[_BatchOption, ...] = ()

    @property
    def load(self) -> float:
        return sum(option.load for option in self.options)

    @property
    def gpus(self) -> int:
        return max(1, ceil(self.load - ROUNDING))

    @property
    def saved(self) -> int:
        """GPUs that the group saves compared with its models alone."""
        if len(self.members) == 1:
            return 0
        return sum(member.stage.replicas for member in self.members) - self.gpus


def objective_allows_sharing(spec: InferenceSessionSpec) -> bool:
    """Whether fewer GPUs make a better plan: the objective counts allocated GPUs."""
    return not spec.objective.type.seeks_throughput and spec.objective.cost_model is CostModel.ALLOCATED


def may_share(spec: InferenceSessionSpec) -> bool:
    """Whether models of a plan for the session may share GPUs."""
    sized = any(module.sizes is not None for module in spec.modules)
    return objective_allows_sharing(spec) and spec.availability is None and (spec.planner.share_gpus or sized)


def with_gpus_to_share(problem: PlanningProblem) -> PlanningProblem:
    """The same problem with so many more GPUs that each model has its own, before models share GPUs."""
    models = sum(len(size_classes(module)) for module in problem.spec.modules if module.model is not None)
    return problem.with_gpus({pool.name: pool.gpus + models - 1 for pool in problem.pools if pool.gpus})


def with_shared_gpus(plan: PipelinePlanSpec, problem: PlanningProblem) -> PipelinePlanSpec:
    """`plan` with sub-clusters where they save GPUs; its objective is the price of allocated vGPUs."""
    members = list(_members(plan, problem))
    groups: list[tuple[Pool, _Group]] = []
    for pool, family in product(sorted(problem.pools, key=lambda pool: pool.name), _families(problem.spec)):
        here = [member for member in members if member.stage.pool == pool.name and member.module.name in family]
        left = sorted(here, key=lambda m: (-min(option.load for option in m.options), m.module.name))
        while left:
            group = _best_group(left, pool)
            left = [member for member in left if member not in group.members]
            if group.saved > 0:
                groups.append((pool, group))
    if not groups:
        return plan
    placed = {
        member.module.name: _placed(member.module, f"shared-{number}", group, option)
        for number, (_, group) in enumerate(groups)
        for member, option in zip(group.members, group.options, strict=True)
    }
    modules = tuple(placed.get(module.name, module) for module in plan.modules)
    return _priced(plan, modules, groups, problem)


def _families(spec: InferenceSessionSpec) -> list[frozenset[str]]:
    """The models that may share GPUs with each other."""
    families = [frozenset(each.name for each in size_classes(module)) for module in spec.modules]
    return [frozenset().union(*families)] if spec.planner.share_gpus else families


def _members(plan: PipelinePlanSpec, problem: PlanningProblem) -> Iterator[_Member]:
    modules = {module.name: module for module in with_size_classes(problem.spec).modules}
    for module in plan.modules:
        if len(module.pipelines) != 1 or len(module.pipelines[0].stages) != 1:
            continue
        (stage,) = module.pipelines[0].stages
        if stage.vgpu_divisor == 1:
            profile = problem.profiles[module.name, stage.pool]
            static, _ = profile.memory_bytes(0, profile.blocks, 1)
            model = modules[module.name].model
            common = model and common_weights(model, problem.spec.execution.backend)
            yield _Member(module, stage, tuple(_options(module, profile, problem)), static, common or module.name)


def _options(module: ModulePlan, profile: Profile, problem: PlanningProblem) -> Iterator[_BatchOption]:
    planner = problem.spec.planner
    rate = float(module.rate)
    (whole,) = [vgpu for vgpu in profile.latency if vgpu.divisor == 1]
    for column, batch in enumerate(profile.batch_sizes):
        if batch <= planner.max_batch_size:
            latency = max(1, ceil(sum(row[column] for row in whole.median_micros)))
            load = rate / (1 - planner.headroom_percent / 100) * latency / batch / SECOND
            least = collection_micros(batch, rate) + latency
            _, dynamic = profile.memory_bytes(0, profile.blocks, batch)
            yield _BatchOption(batch, latency, load, least, dynamic)


def _best_group(candidates: Sequence[_Member], pool: Pool) -> _Group:
    """The group of the first candidate that saves most GPUs; the others join busiest first while they fit."""
    group = best = _Group((candidates[0],))
    for candidate in candidates[1:]:
        wider = _arranged((*group.members, candidate), pool)
        if wider is not None:
            group = wider
            if group.saved > best.saved:
                best = group
    return best


def _arranged(members: tuple[_Member, ...], pool: Pool) -> _Group | None:
    """The members with the batch sizes of least load; None if no batch sizes keep the memory and the budgets.

    A batch may have to wait for a batch of another model that has just begun. So each latency of a batch is tried as
    the longest one: every model takes the batch size of least load that is no longer, and whose own latency and the
    longest one fit its budget.
    """
    found: list[_Group] = []
    for longest in sorted({option.latency_micros for member in members for option in member.options}):
        options: list[_BatchOption] = []
        for member in members:
            budget = member.module.budget_micros - longest
            able = [o for o in member.options if o.latency_micros <= longest and o.least_budget <= budget]
            options += [min(able, key=lambda option: option.load)] if able else []
        if len(options) == len(members) and _fit(members, options, pool):
            found.append(_Group(members, tuple(options)))
    return min(found, key=lambda group: group.load, default=None)


def _fit(members: Sequence[_Member], options: Sequence[_BatchOption], pool: Pool) -> bool:
    """Symphony, appendix A, equation 5; not checked if the pool does not state its memory."""
    static = weights_bytes((member.weights, member.static_bytes) for member in members)
    needed = static + max(option.dynamic_bytes for option in options)
    return pool.spec.memory is None or needed <= float(pool.spec.memory)


def _placed(module: ModulePlan, subcluster: str, group: _Group, option: _BatchOption) -> ModulePlan:
    (pipeline,) = module.pipelines
    kept = {"subcluster": subcluster, "replicas": group.gpus, "latency_micros": option.latency_micros}
    stage = pipeline.stages[0].model_copy(update=kept)
    served = option.load * option.batch / option.latency_micros * SECOND * group.gpus / group.load
    update = {"stages": (stage,), "batch_size": option.batch, "throughput": quantity(served, ROUND_FLOOR)}
    return module.model_copy(update={"pipelines": (pipeline.model_copy(update=update),)})


def _priced(
    plan: PipelinePlanSpec,
    modules: tuple[ModulePlan, ...],
    groups: Sequence[tuple[Pool, _Group]],
    problem: PlanningProblem,
) -> PipelinePlanSpec:
    """The plan with these modules, and its new cost and throughput."""
    money = float(plan.cost.allocated_per_hour) - sum(_price(pool) * group.saved for pool, group in groups)
    watts = None if plan.cost.power_watts is None else float(plan.cost.power_watts)
    if watts is not None:
        watts -= sum(_power(pool) * group.saved for pool, group in groups)
    in_watts = problem.spec.objective.type is ObjectiveType.POWER
    value = watts if in_watts and watts is not None else money
    bound = min(float(plan.solution.bound), value, _bound(problem, _power if in_watts else _price))
    calls = module_rates(problem.spec, 1.0)
    served = min(sum(float(p.throughput) for p in m.pipelines) / calls[m.name] for m in modules if m.pipelines)
    solution = {
        "value": quantity(value),
        "bound": quantity(bound),
        "gap": quantity((value - bound) / value if value else 0.0),
    }
    busy = float(plan.cost.occupancy_per_hour) + sum(_price(pool) * _busier(group) for pool, group in groups)
    cost = {
        "allocated_per_hour": quantity(money),
        "occupancy_per_hour": quantity(busy),
        "power_watts": None if watts is None else quantity(watts),
    }
    return plan.model_copy(
        update={
            "modules": modules,
            "cost": plan.cost.model_copy(update=cost),
            "solution": plan.solution.model_copy(update=solution),
            "throughput": quantity(served, ROUND_FLOOR),
        }
    )


def in_words(plan: PipelinePlanSpec) -> str:
    """The beginning of an explanation: the sub-clusters, and their gain; empty if the plan has none."""
    value = f"The plan's value is {float(plan.solution.value):.6g} with sub-clusters; without them:"
    return " ".join([*said, value]) if (said := subclusters_of(plan)) else ""


def subclusters_of(plan: PipelinePlanSpec) -> list[str]:
    """A sentence for each sub-cluster."""
    groups: dict[str, tuple[Stage, list[str]]] = {}
    for module, _, _, stage in plan.stages():
        if stage.subcluster is not None:
            groups.setdefault(stage.subcluster, (stage, []))[1].append(module.name)
    return [
        f"{', '.join(names)} share {stage.replicas} accelerators of {stage.pool} (sub-cluster {name})."
        for name, (stage, names) in groups.items()
    ]


def _busier(group: _Group) -> float:
    """The increase in busy GPUs over the batches that the models had alone, at their rates."""
    return sum(
        float(member.module.rate)
        * (option.latency_micros / option.batch - member.stage.latency_micros / member.module.pipelines[0].batch_size)
        / SECOND
        for member, option in zip(group.members, group.options, strict=True)
    )


def _bound(problem: PlanningProblem, price: Callable[[Pool], float]) -> float:
    """A lower bound on every plan with sharing: each block at its least price, and no GPU idle beyond the headroom."""
    needed = module_rates(problem.spec, problem.rate / (1 - problem.spec.planner.headroom_percent / 100))
    pools = {pool.name: pool for pool in problem.pools}
    least: dict[str, list[float]] = {}
    for (module, name), profile in problem.profiles.items():
        if module not in needed or name not in pools:
            continue
        blocks = least.setdefault(module, [inf] * profile.blocks)
        for vgpu in profile.latency:
            for number, row in enumerate(vgpu.median_micros[: len(blocks)]):
                each = min(micros / batch for micros, batch in zip(row, profile.batch_sizes, strict=True))
                blocks[number] = min(blocks[number], price(pools[name]) / vgpu.divisor * each / 1e6)
    return sum(needed[module] * sum(blocks) for module, blocks in least.items())


def _price(pool: Pool) -> float:
    return float(pool.spec.price_per_hour)


def _power(pool: Pool) -> float:
    return float(pool.spec.power_watts or 0)
