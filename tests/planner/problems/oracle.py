"""Brute force over small planning problems: every template, every count of vGPUs, every combination of modules.

Written from the definitions alone, to compare with the planner.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import ceil, inf

from partita_api.session.execution import CutDType
from partita_planner.problem import PlanningProblem


@dataclass(frozen=True)
class RawStage:
    pool: str
    divisor: int
    rate: float
    price: float


@dataclass(frozen=True)
class RawTemplate:
    latency: int
    stages: tuple[RawStage, ...]

    @property
    def sample_price(self) -> float:
        return sum(stage.price / stage.rate for stage in self.stages)


@dataclass(frozen=True)
class Option:
    """One way to serve a module."""

    latency: int
    cost: float
    vgpus: tuple[tuple[tuple[str, int], int], ...]
    serves: float


def every_template(problem: PlanningProblem, module: str, rate: float) -> Iterator[RawTemplate]:
    """All templates of one module at its arrival rate, whatever their latency."""
    settings = problem.spec.planner
    pools = {p.name: p for p in problem.pools if (module, p.name) in problem.profiles}
    sizes = {b for name in pools for b in problem.profiles[module, name].batch_sizes if b <= settings.max_batch_size}
    blocks = next(iter(problem.profiles.values())).blocks
    vgpus = [
        (name, v.divisor)
        for name, pool in pools.items()
        for v in problem.profiles[module, name].latency
        if v.divisor <= pool.spec.sharing.max_divisor
    ]
    for batch, count in product(sorted(sizes), range(1, settings.max_stages + 1)):
        for ends in cuts(blocks, count):
            for chosen in product(vgpus, repeat=count):
                if all(batch in problem.profiles[module, name].batch_sizes for name, _ in chosen):
                    yield template(problem, module, rate, batch, ends, chosen)


def cuts(blocks: int, count: int) -> Iterator[tuple[int, ...]]:
    """The ends of `count` ranges that make up all blocks."""
    if count == 1:
        yield (blocks,)
        return
    for first in range(1, blocks):
        for rest in cuts(blocks - first, count - 1):
            yield (first, *(first + end for end in rest))


def template(
    problem: PlanningProblem,
    module: str,
    rate: float,
    batch: int,
    ends: tuple[int, ...],
    chosen: tuple[tuple[str, int], ...],
) -> RawTemplate:
    pools = {p.name: p for p in problem.pools}
    starts = (0, *ends[:-1])
    halve = 2 if problem.spec.execution.cut_dtype is CutDType.FP16 else 1
    latency = ceil((batch - 1) * 1e6 / rate)
    stages = []
    for i, ((name, divisor), start, end) in enumerate(zip(chosen, starts, ends, strict=True)):
        profile, pool = problem.profiles[module, name], pools[name]
        column = profile.batch_sizes.index(batch)
        times = next(v for v in profile.latency if v.divisor == divisor).median_micros
        micros = ceil(sum(times[block][column] for block in range(start, end)))
        serves = batch * 1e6 / micros
        for cut in {start, end} - {0, profile.blocks}:
            bits = profile.cuts[cut - 1].bytes // halve * 8
            if bits:
                serves = min(serves, float(pool.spec.bandwidth) / (bits * divisor * pool.spec.gpus_per_node))
        latency += micros
        if i + 1 < len(ends):
            bits = batch * (profile.cuts[end - 1].bytes // halve) * 8
            slower = min(float(pool.spec.bandwidth), float(pools[chosen[i + 1][0]].spec.bandwidth))
            latency += ceil(bits * 1e6 / slower)
        stages.append(RawStage(name, divisor, serves, float(pool.spec.price_per_hour) / divisor))
    return RawTemplate(latency, tuple(stages))


def every_option(
    problem: PlanningProblem, templates: list[RawTemplate], needed: float, most_latency: int, occupancy: bool
) -> list[Option]:
    """All undominated ways to serve `needed` samples per second with vGPUs that the pools have.

    By occupancy a template serves the rest after those with cheaper samples.
    """
    latency_headroom = {p.name: p.gpus for p in problem.pools}
    found: dict[tuple[tuple[tuple[str, int], int], ...], list[Option]] = {(): [Option(0, 0.0, (), 0.0)]}
    for template in sorted(templates, key=lambda t: t.sample_price):
        if template.latency > most_latency:
            continue
        counts = [range(1, latency_headroom[s.pool] * s.divisor + 1) for s in template.stages]
        additions = [(n, min(k * s.rate for k, s in zip(n, template.stages, strict=True))) for n in product(*counts)]
        for option in [o for group in found.values() for o in group]:
            if option.serves >= needed:
                continue
            for n, serves in additions:
                vgpus = dict(option.vgpus)
                for k, stage in zip(n, template.stages, strict=True):
                    key = (stage.pool, stage.divisor)
                    vgpus[key] = vgpus.get(key, 0) + k
                if any(count > latency_headroom[name] for name, count in gpus(vgpus).items()):
                    continue
                units = sum(k * s.price for k, s in zip(n, template.stages, strict=True))
                samples = template.sample_price * min(serves, needed - option.serves)
                cost = option.cost + (samples if occupancy else units)
                made = Option(
                    max(option.latency, template.latency), cost, tuple(sorted(vgpus.items())), option.serves + serves
                )
                group = found.setdefault(made.vgpus, [])
                if not any(dominates(o, made) for o in group):
                    group[:] = [o for o in group if not dominates(made, o)]
                    group.append(made)
    return [o for group in found.values() for o in group if o.serves >= needed * (1 - 1e-9)]


def dominates(one: Option, other: Option) -> bool:
    """Of the same vGPUs."""
    return one.latency <= other.latency and one.serves >= other.serves and one.cost <= other.cost


def gpus(vgpus: Mapping[tuple[str, int], int]) -> dict[str, int]:
    """GPUs by pool, each divided into vGPUs of one size."""
    used: dict[str, int] = {}
    for (pool, divisor), count in vgpus.items():
        used[pool] = used.get(pool, 0) + ceil(count / divisor)
    return used


def least_cost(problem: PlanningProblem, occupancy: bool = False) -> float:
    """Price per hour of the cheapest plan for a chain of models; infinite if there is none."""
    kept_free = problem.spec.planner.headroom_percent / 100
    slo = problem.spec.slo.latency_ms * 10 * (100 - problem.spec.planner.margin_percent)
    latency_headroom = {p.name: p.gpus for p in problem.pools}
    plans: list[Option] = [Option(0, 0.0, (), inf)]
    for module in problem.spec.modules:
        templates = list(every_template(problem, module.name, problem.rate))
        options = every_option(problem, templates, problem.rate / (1 - kept_free), slo, occupancy)
        joined: dict[tuple[int, tuple[tuple[tuple[str, int], int], ...]], Option] = {}
        for plan, option in product(plans, options):
            vgpus = dict(plan.vgpus)
            for key, count in option.vgpus:
                vgpus[key] = vgpus.get(key, 0) + count
            latency = plan.latency + option.latency
            if latency > slo or any(count > latency_headroom[name] for name, count in gpus(vgpus).items()):
                continue
            taken = tuple(sorted(vgpus.items()))
            cost = plan.cost + option.cost
            if (latency, taken) not in joined or cost < joined[latency, taken].cost:
                joined[latency, taken] = Option(latency, cost, taken, inf)
        plans = list(joined.values())
    return min((p.cost for p in plans), default=inf) * (1 - kept_free if occupancy else 1)


def most_throughput(
    templates: Mapping[str, list[RawTemplate]], weights: Mapping[str, float], latency_headroom: Mapping[str, int]
) -> float:
    """Highest level of weighted throughput when stages own whole GPUs: a dynamic program over vectors of GPUs."""
    names = sorted(latency_headroom)
    vectors = list(product(*(range(latency_headroom[name] + 1) for name in names)))
    level = dict.fromkeys(vectors, inf)
    for module, weight in weights.items():
        served = _served(templates[module], names, vectors)
        level = {
            vector: max(
                min(level[rest], served[used] / weight)
                for used in product(*(range(n + 1) for n in vector))
                if (rest := tuple(n - u for n, u in zip(vector, used, strict=True))) in level
            )
            for vector in vectors
        }
    return level[tuple(latency_headroom[name] for name in names)]


def _served(
    templates: list[RawTemplate], names: list[str], vectors: list[tuple[int, ...]]
) -> dict[tuple[int, ...], float]:
    """The most that one module serves with each vector of GPUs."""
    served = dict.fromkeys(vectors, 0.0)
    for template in templates:
        for counts in product(*(range(1, vectors[-1][names.index(s.pool)] + 1) for s in template.stages)):
            used = [0] * len(names)
            for count, stage in zip(counts, template.stages, strict=True):
                used[names.index(stage.pool)] += count
            if tuple(used) in served:
                serves = min(n * s.divisor * s.rate for n, s in zip(counts, template.stages, strict=True))
                served[tuple(used)] = max(served[tuple(used)], serves)
    best: dict[tuple[int, ...], float] = {}
    for vector in vectors:
        best[vector] = max(
            best[rest] + served[used]
            if (rest := tuple(n - u for n, u in zip(vector, used, strict=True))) != vector
            else 0.0
            for used in product(*(range(n + 1) for n in vector))
        )
    return best
