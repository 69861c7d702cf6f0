"""Checks a plan against its problem from first principles. Shares no code with the planner.

Every figure of the plan is computed again from its stages, the profiles, the pools and the session. Figures may differ
by TOLERANCE, which covers rounding in the plan's text and the solver's tolerance.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import ceil, inf
from typing import Final

from partita_api.gpupool import SharingMode
from partita_api.inferencesession import CostModel, ObjectiveType
from partita_api.module_graph import with_size_classes
from partita_api.pipelineplan import ModulePlan, PipelinePlanSpec, PooledPipeline, Stage, after_losses
from partita_api.profile import Profile
from partita_api.session.execution import CutDType, common_weights, weights_bytes
from partita_api.session.module import Join, Module
from partita_api.session.size_classes import size_classes
from partita_planner.problem import PlanningProblem, Pool

TOLERANCE: Final = 1e-5


def validate(plan: PipelinePlanSpec, problem: PlanningProblem) -> tuple[str, ...]:
    """What is wrong with `plan` as a plan for `problem`, a sentence each; empty if it is valid."""
    check = _Check(plan, problem)
    broken = tuple(check.structure())
    return broken or tuple(check.numbers())


@dataclass(frozen=True)
class _Check:
    plan: PipelinePlanSpec
    problem: PlanningProblem

    @property
    def pools(self) -> Mapping[str, Pool]:
        return {pool.name: pool for pool in self.problem.pools}

    @property
    def session_modules(self) -> Mapping[str, Module]:
        return {module.name: module for module in with_size_classes(self.problem.spec).modules}

    def structure(self) -> Iterator[str]:
        """Checks that everything the plan refers to exists, and that every pipeline runs the whole model."""
        planned = [module.name for module in self.plan.modules]
        if sorted(planned) != sorted(self.session_modules):
            yield f"the plan has modules {sorted(planned)}, the session {sorted(self.session_modules)}"
            return
        for module in self.plan.modules:
            if self.session_modules[module.name].model is None:
                if module.pipelines:
                    yield f"module {module.name!r} has pipelines, but no model"
                continue
            if module.padded_to is not None:
                yield from self._padded_structure(module)
            elif not module.pipelines:
                yield f"model {module.name!r} has no pipeline"
            names = [pipeline.name for pipeline in module.pipelines]
            if len(set(names)) < len(names):
                yield f"module {module.name!r} has several pipelines of one name: {names}"
            for pipeline in module.pipelines:
                yield from self._pipeline_structure(module, pipeline)
        for ref in self.plan.profiles:
            profile = self.problem.profiles.get((ref.module, ref.pool))
            if profile is None or profile.key != ref.key:
                yield f"the plan was made from profile {ref.key} of {ref.module!r} on {ref.pool!r}, which is not given"

    def _padded_structure(self, module: ModulePlan) -> Iterator[str]:
        """Checks that a size class without replicas is padded to the next larger class that has some."""
        own = {other.name for other in self.plan.modules if other.pipelines}
        families = [[each.name for each in size_classes(m)] for m in self.problem.spec.modules if m.sizes is not None]
        larger = [names[names.index(module.name) + 1 :] for names in families if module.name in names]
        want = next((name for names in larger for name in names if name in own), None)
        if module.pipelines or want is None or module.padded_to != want:
            yield f"{module.name!r} is padded to {module.padded_to!r}; the next larger class with replicas is {want!r}"

    def _pipeline_structure(self, module: ModulePlan, pipeline: PooledPipeline) -> Iterator[str]:
        label = f"pipeline {module.name}/{pipeline.name}"
        settings = self.problem.spec.planner
        if len(pipeline.stages) > settings.max_stages:
            yield f"{label} has {len(pipeline.stages)} stages, more than planner.maxStages {settings.max_stages}"
        if pipeline.batch_size > settings.max_batch_size:
            yield f"{label} has batches of {pipeline.batch_size}, above planner.maxBatchSize {settings.max_batch_size}"
        profiles = []
        for stage in pipeline.stages:
            profile, pool = self.problem.profiles.get((module.name, stage.pool)), self.pools.get(stage.pool)
            if profile is None or pool is None:
                yield f"{label} uses pool {stage.pool!r}, which has no such pool or profile"
                return
            profiles.append(profile)
            sharing = pool.spec.sharing
            most = sharing.max_divisor if sharing.mode is SharingMode.MPS else 1
            if stage.vgpu_divisor > most or profile.divisor(stage.vgpu_divisor) is None:
                yield f"{label} uses vGPUs of 1/{stage.vgpu_divisor} on {stage.pool!r}, not allowed or not measured"
            if pipeline.batch_size not in profile.batch_sizes:
                yield f"{label} has batches of {pipeline.batch_size}, which were not measured on {stage.pool!r}"
        if len({profile.identity for profile in profiles}) > 1:
            yield f"{label} crosses pools whose profiles are of other content of the model, or cut it differently"
        ends = [0, *(stage.blocks.end for stage in pipeline.stages)]
        starts = [*(stage.blocks.first for stage in pipeline.stages), profiles[0].blocks]
        if ends != starts or any(stage.blocks.first >= stage.blocks.end for stage in pipeline.stages):
            yield f"{label} does not run blocks 0 to {profiles[0].blocks} in order, each once"

    def numbers(self) -> Iterator[str]:
        """Checks latencies, throughputs, capacities and costs."""
        for module in self.plan.modules:
            for pipeline in module.pipelines:
                yield from self._pipeline_numbers(module, pipeline)
        yield from self._latency()
        yield from self._subclusters()
        yield from self._capacity()
        yield from self._throughput()
        yield from self._availability()
        yield from self._costs()
        yield from self._solution()

    def _pipeline_numbers(self, module: ModulePlan, pipeline: PooledPipeline) -> Iterator[str]:
        label = f"pipeline {module.name}/{pipeline.name}"
        for position, stage in enumerate(pipeline.stages):
            profile = self.problem.profiles[module.name, stage.pool]
            latency = _execution_micros(profile, stage, pipeline.batch_size)
            if not _near(stage.latency_micros, latency, absolute=1.0):
                yield f"{label} says that stage {position} takes {stage.latency_micros} us; it takes {latency:.0f} us"
            after = pipeline.stages[position + 1 : position + 2]
            transfer = self._transfer_micros(profile, stage, after[0], pipeline.batch_size) if after else 0.0
            if not _near(stage.transfer_micros, transfer, absolute=1.0):
                yield f"{label} says that stage {position} sends for {stage.transfer_micros} us, not {transfer:.0f} us"
            memory = self.pools[stage.pool].spec.memory
            together = stage.vgpu_divisor * sum(_memory_bytes(profile, stage, pipeline.batch_size))
            if memory is not None and together > float(memory):
                yield f"{label} does not fit the memory of a vGPU of {stage.pool!r} in stage {position}"
        serves = self._pipeline_rate(module, pipeline)
        if not _near(float(pipeline.throughput), serves):
            yield f"{label} says that it serves {pipeline.throughput} samples/s; it serves {serves:g}"

    def _latency(self) -> Iterator[str]:
        """Every budget covers the worst case of its pipelines, and the budgets of every path keep the SLO."""
        budget = {module.name: module.budget_micros for module in self.plan.modules}
        for module in self.plan.modules:
            if module.padded_to is not None and budget[module.name] != budget[module.padded_to]:
                yield f"module {module.name!r} has another budget than {module.padded_to!r}, to which it is padded"
            reserved = self.session_modules[module.name].reserved_millis
            if reserved is not None and budget[module.name] < reserved * 1000:
                yield f"module {module.name!r} has {budget[module.name]} us, less than its {reserved} ms"
            for pipeline in module.pipelines:
                worst = (pipeline.batch_size - 1) * 1e6 / self._arriving(module)
                worst += sum(stage.latency_micros + stage.transfer_micros for stage in pipeline.stages)
                worst += self._longest_beside(module, pipeline)
                if worst > budget[module.name] + 1:
                    yield (
                        f"pipeline {module.name}/{pipeline.name} may take {worst:.0f} us, "
                        f"more than its module's budget of {budget[module.name]} us"
                    )
        spec = self.problem.spec
        slo = spec.slo.latency_ms * 1000 * (100 - spec.planner.margin_percent) / 100
        edges = with_size_classes(spec).edges
        downstream = {name: [e.target for e in edges if e.source == name] for name in budget}

        def longest(name: str) -> int:
            return budget[name] + max((longest(after) for after in downstream[name]), default=0)

        total = max(longest(name) for name in budget)
        if total > slo:
            yield f"budgets add up to {total} us on the longest path, more than the SLO less its margin, {slo:.0f} us"

    def _members(self) -> dict[str, list[tuple[ModulePlan, PooledPipeline, Stage]]]:
        """The models of each sub-cluster."""
        members: dict[str, list[tuple[ModulePlan, PooledPipeline, Stage]]] = {}
        for module, pipeline, _, stage in self.plan.stages():
            if stage.subcluster is not None:
                members.setdefault(stage.subcluster, []).append((module, pipeline, stage))
        return members

    def _longest_beside(self, module: ModulePlan, pipeline: PooledPipeline) -> int:
        """The longest batch of another model that may have begun on the GPUs of the pipeline's sub-cluster."""
        members = self._members().get(pipeline.stages[0].subcluster or "", [])
        return max((s.latency_micros for m, _, s in members if m.name != module.name), default=0)

    def _subclusters(self) -> Iterator[str]:
        """All models of a sub-cluster fit a vGPU's memory, and its vGPUs have enough time for them."""
        for name, members in self._members().items():
            _, _, first = members[0]
            busy = largest = 0.0
            weights: list[tuple[str, float]] = []
            for module, pipeline, stage in members:
                profile = self.problem.profiles[module.name, stage.pool]
                execution = ceil(_execution_micros(profile, stage, pipeline.batch_size))
                busy += float(pipeline.throughput) * execution / pipeline.batch_size / 1e6
                static, dynamic = _memory_bytes(profile, stage, pipeline.batch_size)
                weights.append((self._weights(module.name), static))
                largest = max(largest, dynamic)
            if busy > first.replicas * (1 + TOLERANCE):
                yield f"sub-cluster {name!r} needs {busy:g} vGPUs for what it is to serve, and has {first.replicas}"
            memory = self.pools[first.pool].spec.memory
            if memory is not None and (weights_bytes(weights) + largest) * first.vgpu_divisor > float(memory):
                yield f"the models of sub-cluster {name!r} do not fit the memory of a vGPU of {first.pool!r}"

    def _weights(self, module: str) -> str:
        """Identifies the weights of a model, which are in memory once for all models that have the same."""
        model = self.session_modules[module].model
        return (model and common_weights(model, self.problem.spec.execution.backend)) or module

    def _vgpus(self) -> Iterator[Stage]:
        """A stage for each group of vGPUs: those of a sub-cluster count once."""
        seen: set[str] = set()
        for _, _, _, stage in self.plan.stages():
            if stage.subcluster not in seen:
                yield stage
            if stage.subcluster is not None:
                seen.add(stage.subcluster)

    def _capacity(self) -> Iterator[str]:
        """The plan uses no more GPUs than each pool has; a GPU holds vGPUs of one size only."""
        vgpus: dict[tuple[str, int], int] = {}
        for stage in self._vgpus():
            key = (stage.pool, stage.vgpu_divisor)
            vgpus[key] = vgpus.get(key, 0) + stage.replicas
        for name, pool in self.pools.items():
            used = sum(-(-count // divisor) for (owner, divisor), count in vgpus.items() if owner == name)
            if used > pool.gpus:
                yield f"the plan takes {used} accelerators of pool {name!r}, which has {pool.gpus}"

    def _throughput(self) -> Iterator[str]:
        """Every module has the capacity for its rate and the headroom."""
        kept_free = self.problem.spec.planner.headroom_percent / 100
        calls = self._calls()
        served = inf
        for module in self.plan.modules:
            if not module.pipelines:
                continue
            capacity = self._module_rate(module)
            served = min(served, capacity / calls[module.name])
            needed = self._arriving(module) / (1 - kept_free)
            if capacity < needed * (1 - TOLERANCE):
                yield f"module {module.name!r} has capacity for {capacity:g} samples/s and needs it for {needed:g}"
        bases = [float(module.rate) / calls[module.name] for module in self.plan.modules]
        if max(bases) > min(bases) * (1 + TOLERANCE) + TOLERANCE:
            yield f"the modules' rates do not follow from one request rate: {min(bases):g} to {max(bases):g} requests/s"
        if not _near(float(self.plan.throughput), served):
            yield f"the plan says that it serves {self.plan.throughput} requests/s; it serves {served:g}"

    def _availability(self) -> Iterator[str]:
        """After every loss that the session survives, the rest serves its share of each module's rate."""
        availability, worst = self.problem.spec.availability, self.plan.solution.worst_loss
        if availability is None:
            return
        if self.plan.shares_gpus:
            yield "the plan has sub-clusters, of which losses are not checked"
        for module, pipeline, position, stage in self.plan.stages():
            if stage.replicas < availability.min_replicas:
                yield (
                    f"stage {position} of {module.name}/{pipeline.name} has {stage.replicas} replicas, fewer than "
                    f"availability.minReplicas {availability.min_replicas}"
                )
        share = availability.served_share.fraction / (1 - self.problem.spec.planner.headroom_percent / 100)
        for lost, modules in after_losses(self.plan, availability.survive_loss):
            for module, left in zip(self.plan.modules, modules, strict=True):
                needed, capacity = share * self._arriving(module), self._module_rate(left)
                if module.pipelines and capacity < needed * (1 - TOLERANCE):
                    yield (
                        f"without {lost}, module {module.name!r} has capacity for {capacity:g} samples/s and needs it "
                        f"for {needed:g}"
                    )
        if worst is not None and not _near(float(worst.throughput), self._after_worst_loss):
            yield (
                f"the plan says that it serves {worst.throughput} requests/s after the worst loss; it serves "
                f"{self._after_worst_loss:g}"
            )

    @cached_property
    def _after_worst_loss(self) -> float:
        """Requests per second that are served after the worst loss; infinite if the session survives none."""
        availability = self.problem.spec.availability
        if availability is None:
            return inf
        calls = self._calls()
        serving = {module.name for module in self.plan.modules if module.pipelines}
        return min(
            self._module_rate(module) / calls[module.name]
            for _, modules in after_losses(self.plan, availability.survive_loss)
            for module in modules
            if module.name in serving
        )

    def _module_rate(self, module: ModulePlan) -> float:
        return sum(self._pipeline_rate(module, pipeline) for pipeline in module.pipelines)

    def _costs(self) -> Iterator[str]:
        kept_free = self.problem.spec.planner.headroom_percent / 100
        allocated = occupancy = watts = watts_at_work = 0.0
        for module in self.plan.modules:
            needed = left = float(module.rate) / (1 - kept_free)
            order = [self._sample_price(module, p, self._dispatched_by) for p in module.pipelines]
            if any(after < before * (1 - TOLERANCE) for before, after in pairwise(order)):
                yield f"the pipelines of module {module.name!r} are not in the order of their price per sample"
            for pipeline in module.pipelines:
                served = min(left, self._pipeline_rate(module, pipeline))
                share = served * float(module.rate) / needed
                occupancy += share * self._sample_price(module, pipeline, self._price)
                watts_at_work += share * self._sample_price(module, pipeline, self._watts)
                left -= served
        for stage in self._vgpus():
            allocated += stage.replicas * self._price(stage)
            watts += stage.replicas * self._watts(stage)
        for kind, said, want, unit in (
            ("allocated cost", self.plan.cost.allocated_per_hour, allocated, "an hour"),
            ("occupancy cost", self.plan.cost.occupancy_per_hour, occupancy, "an hour"),
            ("power", self.plan.cost.power_watts, watts, "W"),
        ):
            if said is not None and not _near(float(said), want):
                yield f"the plan says that its {kind} is {said} {unit}; it is {want:g}"
        if self.plan.solution.objective is ObjectiveType.POWER:
            at_work = self.problem.spec.objective.cost_model is CostModel.OCCUPANCY
            want = watts_at_work if at_work else watts
            if not _near(float(self.plan.solution.value), want):
                yield f"the plan says that its objective value is {self.plan.solution.value} W; it is {want:g} W"

    def _solution(self) -> Iterator[str]:
        solution, objective = self.plan.solution, self.problem.spec.objective
        if solution.objective is not objective.type:
            yield f"the plan optimises {solution.objective}, the session wants {objective.type}"
        value, bound = float(solution.value), float(solution.bound)
        if solution.objective in (ObjectiveType.THROUGHPUT, ObjectiveType.THROUGHPUT_THEN_FEWEST_GPUS):
            share = availability.served_share.fraction if (availability := self.problem.spec.availability) else 1.0
            after_loss = self._after_worst_loss / share if share else inf
            want, beyond = min(float(self.plan.throughput), after_loss), value - bound
        elif solution.objective is ObjectiveType.POWER:
            want, beyond = value, bound - value
        elif objective.cost_model is CostModel.OCCUPANCY:
            want, beyond = float(self.plan.cost.occupancy_per_hour), bound - value
        else:
            want, beyond = float(self.plan.cost.allocated_per_hour), bound - value
        if not _near(value, want):
            yield f"the plan says that its objective value is {value:g}; it is {want:g}"
        if beyond > TOLERANCE * max(1.0, abs(value)):
            yield f"the plan's value {value:g} is better than its own bound {bound:g}"
        if value > 0 and abs(float(solution.gap) - abs(value - bound) / value) > 10 * TOLERANCE:
            yield f"the plan says that its gap is {solution.gap}; value {value:g} and bound {bound:g} say otherwise"

    def _calls(self) -> dict[str, float]:
        """Calls of each module for one request; of a size class, its share, and those of classes padded to it."""
        edges, modules = self.problem.spec.edges, self.problem.spec.modules
        joins = {module.name: module.join for module in modules}

        def calls(name: str) -> float:
            inward = [e for e in edges if e.target == name]
            answers = sum(calls(e.source) * e.mean for e in inward)
            if joins[name] is Join.FIRST:
                return min(answers, max(float(e.fan_out.mean) for e in inward))
            return answers if len(inward) == 1 or joins[name] is Join.ANY else 1.0

        own = {each.name: calls(m.name) * each.share for m in modules for each in size_classes(m)}
        padded = [(module.name, module.padded_to) for module in self.plan.modules if module.padded_to is not None]
        return {name: own[name] + sum(own[one] for one, to in padded if to == name) for name in own}

    def _arriving(self, module: ModulePlan) -> float:
        """Samples per second that the module gets: of the problem's rate, or what throughput is planned for."""
        if self.problem.spec.objective.type in (ObjectiveType.THROUGHPUT, ObjectiveType.THROUGHPUT_THEN_FEWEST_GPUS):
            return float(module.rate)
        return self.problem.rate * self._calls()[module.name]

    def _pipeline_rate(self, module: ModulePlan, pipeline: PooledPipeline) -> float:
        """Samples per second; of a sub-cluster, the share that the plan says, which `_subclusters` checks."""
        if pipeline.stages[0].subcluster is not None:
            return float(pipeline.throughput)
        return min(stage.replicas * self._vgpu_rate(module, pipeline, stage) for stage in pipeline.stages)

    def _vgpu_rate(self, module: ModulePlan, pipeline: PooledPipeline, stage: Stage) -> float:
        """Samples per second of one vGPU: its execution, and its share of the node's link on both sides."""
        profile, pool = self.problem.profiles[module.name, stage.pool], self.pools[stage.pool]
        rate = pipeline.batch_size * 1e6 / ceil(_execution_micros(profile, stage, pipeline.batch_size))
        share = float(pool.spec.bandwidth) / (stage.vgpu_divisor * pool.spec.gpus_per_node)
        for block in (stage.blocks.first, stage.blocks.end):
            crossing = self._cut_bytes(profile, block) * 8
            rate = min(rate, share / crossing) if crossing else rate
        return rate

    def _transfer_micros(self, profile: Profile, stage: Stage, after: Stage, batch: int) -> float:
        slower = min(float(self.pools[s.pool].spec.bandwidth) for s in (stage, after))
        return batch * self._cut_bytes(profile, stage.blocks.end) * 8e6 / slower

    def _cut_bytes(self, profile: Profile, block: int) -> int:
        """Bytes of one sample that are sent in front of `block`."""
        if not 0 < block < profile.blocks:
            return 0
        halved = self.problem.spec.execution.cut_dtype is CutDType.FP16
        return profile.cuts[block - 1].bytes // (2 if halved else 1)

    def _price(self, stage: Stage) -> float:
        return float(self.pools[stage.pool].spec.price_per_hour) / stage.vgpu_divisor

    def _watts(self, stage: Stage) -> float:
        return (self.pools[stage.pool].spec.power_watts or 0) / stage.vgpu_divisor

    def _dispatched_by(self, stage: Stage) -> float:
        """The price that orders pipelines for dispatch: power if the session minimises it, else money."""
        power = self.problem.spec.objective.type is ObjectiveType.POWER
        return self._watts(stage) if power else self._price(stage)

    def _sample_price(self, module: ModulePlan, pipeline: PooledPipeline, price: Callable[[Stage], float]) -> float:
        """Cost of one sample per second for the time that vGPUs work, at `price` of a vGPU."""
        return sum(price(s) / self._vgpu_rate(module, pipeline, s) for s in pipeline.stages)


def _execution_micros(profile: Profile, stage: Stage, batch: int) -> float:
    vgpu = profile.divisor(stage.vgpu_divisor)
    column = profile.batch_sizes.index(batch)
    rows: Sequence[Sequence[float]] = vgpu.median_micros if vgpu else ()
    return max(1.0, sum(row[column] for row in rows[stage.blocks.first : stage.blocks.end]))


def _memory_bytes(profile: Profile, stage: Stage, batch: int) -> tuple[int, int]:
    """Bytes of a replica's weights, and additional bytes of a batch."""
    blocks = profile.memory[stage.blocks.first : stage.blocks.end]
    weights = sum(block.weights_bytes for block in blocks)
    return weights, batch * max((block.activation_bytes for block in blocks), default=0)


def _near(said: float, want: float, absolute: float = TOLERANCE) -> bool:
    return abs(said - want) <= max(absolute, TOLERANCE * abs(want))
