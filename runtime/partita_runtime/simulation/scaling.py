"""The autoscaler in a simulation: it changes replicas by the same rule as the operator."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from partita_api.meta import ObjectMeta
from partita_api.pipelineplan import PipelinePlan, PipelinePlanSpec
from partita_api.session.autoscaling import Autoscaling
from partita_runtime.autoscaling.load_level import RateHistory
from partita_runtime.autoscaling.replicas import autoscale, planned_targets
from partita_runtime.autoscaling.stages import StageTarget
from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import StageRef
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.signals import CoreSignals
from partita_runtime.serving.telemetry.signals import Situation, Snapshot, session_signals
from partita_runtime.simulation.admission_gate import AdmissionGate
from partita_runtime.simulation.application import SimulatedApplication
from partita_runtime.simulation.emulation.clock import VirtualClock
from partita_runtime.simulation.emulation.cluster import EmulatedCluster
from partita_runtime.simulation.emulation.placement import AcceleratorAllocator, WorkerPlacement
from partita_runtime.simulation.report import ScalingStep

CHECK_MICROS: Final = 1_000_000
"""How often the operator checks a session that is scaled to zero."""


@dataclass(frozen=True)
class Scaling:
    """The settings of a simulated autoscaler."""

    plan: PipelinePlanSpec
    """The simulated plan, as the autoscaler reads it."""
    settings: Autoscaling
    gpus: Mapping[str, int]
    """Whole accelerators that the plan may use, by pool."""
    start_up_seconds: float = 20.0
    """Time from the request for a replica until it accepts batches; it occupies its accelerator meanwhile."""
    keeps_planned: bool = False
    """Whether every stage keeps at least its planned replicas."""
    slo_seconds: float = 0.0
    """SLO of held requests: enough replicas start to answer them within it; 0 starts the planned replicas."""
    gpus_per_node: Mapping[str, int] | None = None
    """By pool; 1 by default."""

    def __post_init__(self) -> None:
        if self.start_up_seconds < 0:
            raise ValueError(f"a replica takes 0 s or more to start, not {self.start_up_seconds:g}")
        if self.plan.shares_gpus:
            raise ValueError(
                "a plan with sub-clusters cannot be scaled in simulation; simulate it without the autoscaler"
            )
        lacking = {pool: gpus for pool, gpus in self.plan.gpus().items() if gpus > self.gpus.get(pool, 0)}
        if lacking:
            raise ValueError(f"the plan needs {lacking} accelerators, and may use only {dict(self.gpus)}")


class Scaler:
    """Evaluates the rule at the end of each window, and carries out its decision."""

    def __init__(
        self,
        scaling: Scaling,
        plan: SchedulingPlan,
        core: SchedulingCore,
        clock: VirtualClock,
        horizon: int,
    ) -> None:
        """The last window ends at `horizon` (microseconds)."""
        self._scaling = scaling
        self._scheduled = plan
        self._plan = PipelinePlan(metadata=ObjectMeta(name=plan.name, namespace="default"), spec=scaling.plan)
        self._core = core
        self._clock = clock
        self._horizon = horizon
        self._window = scaling.settings.window_seconds * 1_000_000
        self._allocator = AcceleratorAllocator(plan, scaling.gpus_per_node)
        self._targets = planned_targets(self._plan)
        self._replicas: dict[StageRef, list[WorkerPlacement]] = {
            ref: [self._allocator.add(ref) for _ in range(target.replicas)]
            for ref, target in ((_ref(target), target) for target in self._targets)
        }
        self._started = {ref: {place.worker for place in places} for ref, places in self._replicas.items()}
        """Names of the replicas that have started."""
        self._ready_since: int | None = 0
        """When every stage got a replica; None while the session is scaled to zero."""
        self._gate: AdmissionGate | None = None
        self._check_scheduled = False
        self._changed_at: int | None = None
        self._cluster: EmulatedCluster | None = None
        self._before: Snapshot | None = None
        self._rates = {module.name: RateHistory() for module in plan.modules}
        self.steps: list[ScalingStep] = []

    @property
    def placed(self) -> list[WorkerPlacement]:
        """The placements of all replicas."""
        return [place for places in self._replicas.values() for place in places]

    @property
    def width(self) -> int:
        """Samples in progress at once if each ready replica runs a full batch; 0 while requests are held."""
        return 0 if self._ready_since is None else self._scheduled.width(self._started)

    def request_held(self) -> None:
        """A request is held: the operator notices it at its next check."""
        if not self._check_scheduled:
            self._check_scheduled = True
            self._clock.at(self._clock.now + CHECK_MICROS, self._check)

    def gate(self, application: SimulatedApplication) -> AdmissionGate:
        """Make the gate that holds the application's requests while there are no replicas."""
        self._gate = AdmissionGate(application, self._scaling.settings.scale_to_zero, self, self._clock)
        return self._gate

    def begin(self, cluster: EmulatedCluster) -> None:
        """Start to scale a cluster of the planned replicas."""
        self._cluster = cluster
        self._before = self._snapshot()
        self.steps.append(ScalingStep(0.0, self._gpus(), len(self.placed), 0.0, 0.0, 1.0, "Replicas are as planned."))
        self._clock.at(self._window, self._step)

    def _check(self) -> None:
        self._check_scheduled = False
        if not any(target.replicas for target in self._targets):
            self._decide()

    def _step(self) -> None:
        self._decide()
        if self._clock.now + self._window <= self._horizon:
            self._clock.at(self._clock.now + self._window, self._step)

    def _decide(self) -> None:
        now, scaling = self._clock.now, self._scaling
        before, after = self._before or self._snapshot(), self._snapshot()
        self._before = after
        signals = session_signals(Situation("simulated", self._scheduled), before, after, ())
        if self._gate is not None:
            idle = (now - self._gate.last_arrival) / 1e6
            signals = signals.model_copy(update={"held": self._gate.held, "idle_seconds": idle})
        seconds = max(after.at - before.at, 1) / 1e6
        for name, arrived in _arrived(before.core, after.core).items():
            self._rates[name] = self._rates[name].add(now / 1e6, arrived / seconds)
        gpus = self._gpus()
        decision = autoscale(
            scaling.settings,
            self._plan,
            self._targets,
            signals,
            {pool: scaling.gpus.get(pool, 0) - gpus.get(pool, 0) for pool in scaling.gpus.keys() | gpus.keys()},
            inf if self._changed_at is None else (now - self._changed_at) / 1e6,
            scaling.keeps_planned,
            self._rates,
            ready_seconds=0.0 if self._ready_since is None else (now - self._ready_since) / 1e6,
            slo_seconds=scaling.slo_seconds,
        )
        if decision.changed:
            self._changed_at = now
            self._targets = decision.targets
            for target in decision.targets:
                self._scale(_ref(target), target.replicas)
            if not any(target.replicas for target in decision.targets):
                self._ready_since = None
        arrived, good, bad = _ended(before.core, after.core)
        self.steps.append(
            ScalingStep(
                now / 1e6,
                self._gpus(),
                sum(stage.ready for stage in signals.stages),
                arrived / seconds,
                bad / (good + bad) if good + bad else 0.0,
                signals.idle_fraction,
                decision.reason,
            )
        )

    def _scale(self, ref: StageRef, count: int) -> None:
        """Start or retire replicas of a stage until it has `count`; the youngest are retired first."""
        replicas, cluster = self._replicas[ref], self._cluster
        assert cluster is not None, "replicas change after `begin`"
        start_up = round(self._scaling.start_up_seconds * 1e6)
        while len(replicas) < count:
            replicas.append(self._allocator.add(ref))
            self._clock.at(self._clock.now + start_up, self._replica_started, ref, replicas[-1])
        while len(replicas) > count:
            retired = replicas.pop().worker
            self._started[ref].discard(retired)
            self._allocator.remove(retired)
            cluster.retire(retired)

    def _replica_started(self, ref: StageRef, place: WorkerPlacement) -> None:
        if place not in self._replicas[ref]:
            return
        assert self._cluster is not None, "replicas change after `begin`"
        self._cluster.add(place)
        self._started[ref].add(place.worker)
        if self._ready_since is None and all(self._started.values()):
            self._ready_since = self._changed_at = self._clock.now
        if self._gate is not None:
            self._gate.open()

    def _gpus(self) -> dict[str, int]:
        return self._scaling.plan.gpus({(t.module, t.pipeline, t.stage): t.replicas for t in self._targets})

    def _snapshot(self) -> Snapshot:
        return Snapshot(self._clock.now, 0, {}, self._core.signals(self._clock.now))


def _ref(target: StageTarget) -> StageRef:
    return StageRef(target.module, target.pipeline, target.stage)


def _arrived(before: CoreSignals | None, after: CoreSignals | None) -> dict[str, int]:
    """Requests that arrived between two snapshots, by module."""
    earlier = {name: module.arrived for name, module in before.modules.items()} if before else {}
    modules = after.modules if after else {}
    return {name: module.arrived - earlier.get(name, 0) for name, module in modules.items()}


def _ended(before: CoreSignals | None, after: CoreSignals | None) -> tuple[int, int, int]:
    """Requests between two snapshots: arrived, answered in time, and late or dropped."""

    def counted(signals: CoreSignals | None) -> tuple[int, int, int]:
        modules = signals.modules.values() if signals else ()
        return (
            sum(m.arrived for m in modules),
            sum(m.in_time for m in modules),
            sum(m.late + sum(m.dropped.values()) for m in modules),
        )

    arrived, good, bad = (then - earlier for then, earlier in zip(counted(after), counted(before), strict=True))
    return arrived, good, bad
