"""Test doubles around the operator: a serving engine, a profile runner and a solver.

They keep the ports' contracts (idempotent calls, runs named by key and attempt) and follow the test's script.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from partita_api.fields.quantity import Quantity
from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession, Signals
from partita_api.pipelineplan import (
    BlockRange,
    Costs,
    ModulePlan,
    PipelinePlanSpec,
    PooledPipeline,
    Solution,
    Stage,
)
from partita_api.profile import Cut, Profile, ProfileRequest, VgpuLatency
from partita_api.session.size_classes import size_classes
from partita_operator.ports import (
    EngineUnavailableError,
    PlanServing,
    ProfileRun,
    Remark,
    RunPhase,
    ServingSignals,
    ServingSpec,
    ServingStatus,
    SessionBackend,
    StageReadiness,
    StageSignals,
)
from partita_planner.problem import NoPlan, NoPlanReason, Outcome, Planned, PlanningProblem
from partita_runtime.serving.deploy.epochs import CheckState


@dataclass
class EngineDouble:
    """A serving engine that starts replicas at once, at most `most_ready` per stage."""

    away: str = ""
    """Why the engine cannot be reached; empty if it can."""
    most_ready: int = 1000
    remarks: tuple[Remark, ...] = ()
    """What the engine reports of every session that it serves."""
    custom_resources: dict[str, float] = field(default_factory=dict)
    reported: dict[str, ServingSignals] = field(default_factory=dict)
    applied: dict[str, ServingSpec] = field(default_factory=dict)
    """What was last applied, by session key."""
    answers: Callable[[bytes], tuple[int, bytes]] = lambda _: (503, b"")
    """Answers samples, for every plan."""
    asked: list[str] = field(default_factory=list)
    """The plans that samples were sent to."""
    served: dict[str, str] = field(default_factory=dict)
    """The plan that frontends use, by session key."""
    backends: dict[str, SessionBackend] = field(default_factory=dict)
    """The pods of each session, by session key."""
    lost_contents: frozenset[str] = frozenset()
    """Contents that some nodes do not have: there, new replicas of models with one of them refuse to start."""
    removals_needed: int = 1
    """Calls of `remove` until everything is gone."""
    _removals: dict[str, int] = field(default_factory=dict)

    async def apply(self, spec: ServingSpec) -> None:
        self._reachable()
        key = spec.session.key
        self.applied[key] = spec
        if spec.check is not CheckState.AWAITED and self._is_up(spec):
            self.served[key] = spec.plan.metadata.name

    async def observe(self, session_key: str) -> ServingStatus:
        self._reachable()
        spec = self.applied.get(session_key)
        if spec is None:
            return ServingStatus()
        refusing = {ref.module for ref in spec.plan.spec.profiles if ref.content in self.lost_contents}
        stages = tuple(
            StageReadiness(
                t.module,
                t.pipeline,
                t.stage,
                ready=min(t.replicas, self.most_ready),
                content_changed=t.module in refusing,
            )
            for t in spec.targets
        )
        at_zero = not any(t.replicas for t in spec.targets)
        up = self._is_up(spec) and (spec.check is not CheckState.AWAITED or session_key in self.served)
        name, ports = spec.plan.metadata.name, spec.session.spec.frontend
        return ServingStatus(
            plans=() if at_zero else (PlanServing(name, stages),),
            serving_plan=(self.served[session_key] if spec.check is CheckState.AWAITED else name) if up else None,
            frontend_ready=up,
            url=f"http://engine/{session_key}" if up else None,
            grpc_address=f"node:{ports.grpc_port}" if up and ports.grpc_port else None,
            http_address=f"node:{ports.http_port}" if up and ports.http_port else None,
            remarks=self.remarks,
        )

    async def signals(self, session_key: str) -> ServingSignals | None:
        self._reachable()
        return self.reported.get(session_key)

    async def ask(self, session_key: str, plan: str, sample: bytes) -> tuple[int, bytes]:
        self._reachable()
        self.asked.append(plan)
        return self.answers(sample)

    async def backend(self, session_key: str, serving: ServingStatus | None) -> SessionBackend | None:
        return self.backends.get(session_key)

    async def remove(self, session_key: str) -> bool:
        self._reachable()
        self._removals[session_key] = self._removals.get(session_key, 0) + 1
        if self._removals[session_key] >= self.removals_needed:
            self.applied.pop(session_key, None)
            self.served.pop(session_key, None)
            self._removals.pop(session_key)
        return session_key not in self.applied

    async def sessions(self) -> frozenset[str]:
        self._reachable()
        return frozenset(self.applied)

    async def capacity(self) -> Mapping[str, float]:
        self._reachable()
        return dict(self.custom_resources)

    def _is_up(self, spec: ServingSpec) -> bool:
        at_zero = not any(t.replicas for t in spec.targets)
        return at_zero or all(min(t.replicas, self.most_ready) > 0 for t in spec.targets)

    def _reachable(self) -> None:
        if self.away:
            raise EngineUnavailableError(self.away)


@dataclass(frozen=True)
class EnginesDouble:
    """One engine for all sessions."""

    engine: EngineDouble

    def of(self, session: InferenceSession) -> EngineDouble:
        return self.engine

    def known(self) -> tuple[EngineDouble, ...]:
        return (self.engine,)

    async def has_left(self, session: InferenceSession, engine: EngineDouble) -> bool:
        return False


def made_profile(request: ProfileRequest) -> Profile:
    """A profile for the request: 1 ms per sample, in equal blocks."""
    row = tuple(1000.0 * b / request.blocks for b in request.batch_sizes)
    return Profile(
        key=request.key,
        request=request,
        partition="even",
        batch_sizes=request.batch_sizes,
        latency=tuple(VgpuLatency(divisor=v, median_micros=(row,) * request.blocks) for v in request.divisors),
        cuts=(Cut(bytes=1000),) * (request.blocks - 1),
    )


@dataclass
class RunnerDouble:
    """A profile runner whose runs end by the script of their pool and attempt; without a script they succeed."""

    script: dict[str, tuple[RunPhase, ...]] = field(default_factory=dict)
    """By pool: the ends of the first, second, ... attempt; the last one applies to all later attempts."""
    runs: dict[tuple[str, str, int], ProfileRequest] = field(default_factory=dict)
    """Existing runs, by namespace, key and attempt."""
    started: list[tuple[str, str, int]] = field(default_factory=list)
    """All runs since the start."""
    make: Callable[[ProfileRequest], Profile] = made_profile
    """Makes the profiles of runs that succeed."""
    obstacle: str = ""
    """Why the pods of running runs do not start."""
    away: str = ""

    async def start(self, namespace: str, request: ProfileRequest, pool: GPUPool, attempt: int) -> None:
        self._reachable()
        name = (namespace, request.key, attempt)
        if name not in self.runs:
            self.runs[name] = request
            self.started.append(name)

    async def observe(self, namespace: str, key: str, attempt: int) -> ProfileRun:
        self._reachable()
        request = self.runs.get((namespace, key, attempt))
        if request is None:
            return ProfileRun(RunPhase.ABSENT)
        phases = self.script.get(request.pool, (RunPhase.SUCCEEDED,))
        match phases[min(attempt, len(phases)) - 1]:
            case RunPhase.SUCCEEDED:
                return ProfileRun(RunPhase.SUCCEEDED, self.make(request))
            case RunPhase.FAILED:
                return ProfileRun(RunPhase.FAILED, message="RuntimeError: the model wants 4 channels")
            case phase:
                return ProfileRun(phase, message=self.obstacle, waits=bool(self.obstacle))

    async def remove(self, namespace: str, key: str, attempt: int) -> None:
        self._reachable()
        self.runs.pop((namespace, key, attempt), None)

    def _reachable(self) -> None:
        if self.away:
            raise EngineUnavailableError(self.away)


def one_stage_plan(problem: PlanningProblem) -> Outcome:
    """A simple plan: every module whole, on the first pool with enough GPUs; 100 requests/s per GPU.

    An SLO below 10 ms has no plan.
    """
    if problem.spec.slo.latency_ms < 10:
        return NoPlan(NoPlanReason.SLO_TOO_TIGHT, "Nothing answers within 10 ms; raise slo.latencyMs.", 10)
    needed = max(1, -int(-problem.rate // 100))
    if problem.spec.objective.type.seeks_throughput:
        needed = max((pool.gpus for pool in problem.pools), default=0) // len(problem.spec.modules)
    left = {pool.name: pool.gpus for pool in problem.pools}
    modules = []
    for module in [each.module for declared in problem.spec.modules for each in size_classes(declared)]:
        if module.model is None:
            modules.append(ModulePlan(name=module.name, rate=Quantity(problem.rate), budget_micros=0))
            continue
        pools = [pool for (name, pool) in sorted(problem.profiles) if name == module.name]
        chosen = next((pool for pool in pools if left[pool] >= needed > 0), None)
        if chosen is None:
            return NoPlan(NoPlanReason.INSUFFICIENT_CAPACITY, f"{module.name} needs {needed} GPUs; add some.")
        left[chosen] -= needed
        blocks = problem.profiles[module.name, chosen].blocks
        stage = Stage(blocks=BlockRange(first=0, end=blocks), pool=chosen, replicas=needed, latency_micros=10_000)
        pipeline = PooledPipeline(name="p0", batch_size=1, stages=(stage,), throughput=Quantity(needed * 100))
        modules.append(
            ModulePlan(name=module.name, rate=Quantity(problem.rate), budget_micros=20_000, pipelines=(pipeline,))
        )
    cost = Quantity(needed * len(modules))
    return Planned(
        PipelinePlanSpec(
            session=problem.session,
            inputs_digest="",
            solution=Solution(
                strategy="double",
                objective=problem.spec.objective.type,
                value=cost,
                bound=cost,
                gap=Quantity(0),
                seconds=Quantity(0),
            ),
            modules=tuple(modules),
            cost=Costs(allocated_per_hour=cost, occupancy_per_hour=cost),
            throughput=Quantity(needed * 100),
        )
    )


def signals(plan: str | None, offered: float, bad: float = 0.0, idle: float = 0.1) -> ServingSignals:
    """Totals without stages: the autoscaler has no input."""
    return ServingSignals(
        reported=Signals(
            offered_rate=Quantity(offered),
            goodput=Quantity(round(offered * (1 - bad), 3)),
            bad_rate=Quantity(bad),
            idle_fraction=Quantity(idle),
        ),
        plan=plan,
        stages=(),
    )


def with_stages(
    measured: ServingSignals, plan_stages: Mapping[tuple[str, str, int], tuple[int, float, float]]
) -> ServingSignals:
    """The signals with stages: (ready, idle fraction, bad rate) by (module, pipeline, position)."""
    return replace(
        measured,
        stages=tuple(
            StageSignals(module, pipeline, stage, ready=ready, idle_fraction=idle, bad_rate=bad)
            for (module, pipeline, stage), (ready, idle, bad) in plan_stages.items()
        ),
    )
