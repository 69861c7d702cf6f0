"""Builders of scheduling plans, and a driver that executes dispatches exactly as reserved.

plan_of(module("m").pipeline(4, stage("gpu", replicas=3, alpha=100, beta=500)))
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any, Self

from partita_api.session.execution import BatchingPolicy
from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Action, Dispatch, Drop, DropReason, StageRef
from partita_runtime.scheduling.plan import ScheduledModule, ScheduledPipeline, ScheduledStage, SchedulingPlan


@dataclass(frozen=True)
class StageBuilder:
    """One stage: a batch of b takes alpha * b + beta microseconds."""

    pool: str
    replicas: int = 1
    alpha: int = 100
    beta: int = 500
    output_bytes: int = 0
    blocks: int = 1

    def build(self, batch_size: int, first_block: int) -> ScheduledStage:
        return ScheduledStage(
            pool=self.pool,
            first_block=first_block,
            end_block=first_block + self.blocks,
            vgpu_divisor=1,
            replicas=self.replicas,
            latency_micros=tuple(self.alpha * b + self.beta for b in range(1, batch_size + 1)),
            output_bytes=self.output_bytes,
        )


def stage(pool: str, **fields: Any) -> StageBuilder:
    """A stage on a pool."""
    return StageBuilder(pool, **fields)


@dataclass(frozen=True)
class ModuleBuilder:
    """One module; its pipelines are named a, b, ..."""

    name: str
    downstream_micros: int = 0
    budget_micros: int = 0
    pipelines: tuple[ScheduledPipeline, ...] = ()

    def pipeline(self, batch_size: int, *stages: StageBuilder) -> Self:
        built = ScheduledPipeline(
            name="abcdefgh"[len(self.pipelines)],
            batch_size=batch_size,
            stages=tuple(s.build(batch_size, sum(b.blocks for b in stages[:i])) for i, s in enumerate(stages)),
        )
        return replace(self, pipelines=(*self.pipelines, built))

    def build(self) -> ScheduledModule:
        return ScheduledModule(
            name=self.name,
            budget_micros=self.budget_micros,
            downstream_micros=self.downstream_micros,
            pipelines=self.pipelines,
        )


def module(name: str, **fields: Any) -> ModuleBuilder:
    """A module without pipelines yet."""
    return ModuleBuilder(name, **fields)


def plan_of(
    *modules: ModuleBuilder,
    name: str = "plan",
    policy: str = BatchingPolicy.DEFERRED,
    bandwidth: Mapping[str, float] | None = None,
) -> SchedulingPlan:
    """A plan of these modules."""
    return SchedulingPlan(
        name=name, policy=policy, bandwidth=dict(bandwidth or {}), modules=tuple(m.build() for m in modules)
    )


def refs(plan: SchedulingPlan) -> list[tuple[StageRef, ScheduledStage]]:
    """All stages of a plan."""
    return [
        (StageRef(m.name, p.name, number), s)
        for m in plan.modules
        for p in m.pipelines
        for number, s in enumerate(p.stages)
    ]


def worker_name(ref: StageRef, replica: int) -> str:
    """The name that the driver gives to a replica."""
    return f"{ref.module}.{ref.pipeline}.{ref.stage}.{replica}"


@dataclass
class Driver:
    """Drives a core on a virtual clock; executions take `took(dispatch, stage, reserved)` microseconds."""

    plan: SchedulingPlan
    workers_per_node: int = 1
    took: Callable[[Dispatch, int, int], int] = lambda _dispatch, _stage, reserved: reserved
    core: SchedulingCore = field(init=False)
    now: int = 0
    dispatches: list[tuple[int, Dispatch]] = field(default_factory=list)
    """Times and actions."""
    drops: dict[int, tuple[int, Drop]] = field(default_factory=dict)
    """Times and outcomes, by request."""
    answers: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Times and batches, by request."""
    cancelled: set[int] = field(default_factory=set)
    ended_early: dict[int, int] = field(default_factory=dict)
    """Times at which batches were lost, failed or were preempted, by id."""
    ended: Callable[[int, bool], None] = lambda _request_id, _answered: None
    """Called for every request that is answered or dropped."""

    def __post_init__(self) -> None:
        self.core = SchedulingCore(self.plan)
        self._calls: list[tuple[int, int, Callable[[], None]]] = []
        self._running: dict[int, tuple[Dispatch, int]] = {}
        self._order = 0
        self._waiting: set[int] = set()

    def all_join(self) -> Self:
        """Let every replica of the plan join."""
        for ref, spec in refs(self.plan):
            for replica in range(spec.replicas):
                self.join(ref, replica)
        return self

    def join(self, ref: StageRef, replica: int, plan: str | None = None) -> None:
        node = f"{ref.module}.{ref.pipeline}.{ref.stage}/{replica // self.workers_per_node}"
        self.core.worker_joined(ref, worker_name(ref, replica), node, self.now, plan)

    def at(self, time: int, call: Callable[[], None]) -> None:
        """Call at a time; calls of equal times run in the order of scheduling."""
        self._order += 1
        heappush(self._calls, (time, self._order, call))

    def arrive(self, request_id: int, module_name: str, at: int, deadline: int, call: int | None = None) -> None:
        def arrives() -> None:
            self._waiting.add(request_id)
            self.core.arrive(request_id, module_name, deadline, self.now, call)

        self.at(at, arrives)

    def cancel(self, request_id: int, at: int) -> None:
        def call() -> None:
            if request_id in self._waiting:
                self._waiting.remove(request_id)
                self.cancelled.add(request_id)
            self.core.cancel(request_id, self.now)

        self.at(at, call)

    def lose(self, worker: str, at: int) -> None:
        def call() -> None:
            for batch_id, (dispatch, progress) in list(self._running.items()):
                if worker in dispatch.path[progress:]:
                    del self._running[batch_id]
                    self.ended_early[batch_id] = self.now
            self.core.worker_lost(worker, self.now)

        self.at(at, call)

    def fail(self, batch_id: int, at: int) -> None:
        self._end_early(batch_id, at, lambda: self.core.failed(batch_id, self.now, "out of memory"))

    def lose_batch(self, batch_id: int, at: int) -> None:
        self._end_early(batch_id, at, lambda: self.core.lost(batch_id, self.now))

    def _end_early(self, batch_id: int, at: int, report: Callable[[], None]) -> None:
        def call() -> None:
            if self._running.pop(batch_id, None):
                self.ended_early[batch_id] = self.now
                report()

        self.at(at, call)

    def run(self, until: int | None = None) -> Self:
        """Run until no event is left, or until a time."""
        while True:
            wakeup = self.core.next_wakeup()
            times = [time for time in (self._calls[0][0] if self._calls else None, wakeup) if time is not None]
            if not times or (until is not None and min(times) > until):
                return self
            self.now = max(self.now, min(times))
            while self._calls and self._calls[0][0] <= self.now:
                heappop(self._calls)[2]()
            for action in self.core.advance(self.now):
                self._carry_out(action)

    def sizes(self) -> list[int]:
        """Sizes of all dispatched batches, in order."""
        return [len(dispatch.request_ids) for _, dispatch in self.dispatches]

    def reasons(self) -> dict[int, DropReason]:
        """Reasons of dropped requests, by request."""
        return {request_id: drop.reason for request_id, (_, drop) in self.drops.items()}

    def latency(self, dispatch: Dispatch, number: int) -> int:
        """The profiled time of one stage of a batch."""
        spec = dict(refs(self.plan))[StageRef(dispatch.module, dispatch.pipeline, number)]
        return spec.latency_micros[len(dispatch.request_ids) - 1]

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Drop):
            assert action.request_id not in self.drops, "dropped twice"
            self._waiting.discard(action.request_id)
            self.cancelled.discard(action.request_id)  # decided before the client left
            self.drops[action.request_id] = (self.now, action)
            self.ended(action.request_id, False)
            return
        if action.preempts is not None:
            del self._running[action.preempts]
            self.ended_early[action.preempts] = self.now
        self.dispatches.append((self.now, action))
        self._running[action.batch_id] = (action, 0)
        self._execute(action, 0, action.starts[0])

    def _execute(self, dispatch: Dispatch, number: int, start: int) -> None:
        end = start + self.took(dispatch, number, self.latency(dispatch, number))

        def call() -> None:
            if dispatch.batch_id not in self._running:
                return
            self.core.completed(dispatch.batch_id, number, self.now)
            if number + 1 < len(dispatch.path):
                self._running[dispatch.batch_id] = (dispatch, number + 1)
                self._execute(dispatch, number + 1, max(self.now, dispatch.starts[number + 1]))
                return
            del self._running[dispatch.batch_id]
            for request_id in dispatch.request_ids:
                if request_id not in self.cancelled:
                    assert request_id not in self.answers, "answered twice"
                    self._waiting.remove(request_id)
                    self.answers[request_id] = (self.now, dispatch.batch_id)
                    self.ended(request_id, True)

        self.at(end, call)
