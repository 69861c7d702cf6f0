"""The autoscaler in the loop of a simulation: replicas come and go by the rule that the operator follows."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from partita_api.autoscaling import Autoscaling
from partita_api.meta import ObjectMeta
from partita_api.pipelineplan import PipelinePlan, PipelinePlanSpec
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
from partita_runtime.simulation.emulation.placement import Space, WorkerPlacement
from partita_runtime.simulation.report import ScalingStep

LOOK_MICROS: Final = 1_000_000
"""How often the operator looks at a session that sleeps."""


@dataclass(frozen=True)
class Scaling:
    """How replicas follow the load."""

    plan: PipelinePlanSpec
    """The plan that is simulated, as the autoscaler sees it."""
    settings: Autoscaling
    gpus: Mapping[str, int]
    """Whole accelerators that the plan may take, by pool."""
    start_up_seconds: float = 20.0
    """Time from asking for a replica until it takes batches; it holds its accelerator meanwhile."""
    keeps_planned: bool = False
    """Whether no stage goes below its planned replicas."""
    slo_seconds: float = 0.0
    """Of requests that are held: within it as many replicas as wake answer them; 0 wakes the planned ones."""
    gpus_per_node: Mapping[str, int] | None = None
    """By pool; 1 for those not named."""

    def __post_init__(self) -> None:
        if self.start_up_seconds < 0:
            raise ValueError(f"a replica takes 0 s or more to start, not {self.start_up_seconds:g}")
        if self.plan.shares_gpus:
            raise ValueError("a plan with sub-clusters cannot be scaled in simulation; simulate it as planned")
        lacking = {pool: gpus for pool, gpus in self.plan.gpus().items() if gpus > self.gpus.get(pool, 0)}
        if lacking:
            raise ValueError(f"the plan itself takes {lacking} accelerators, and may only take {dict(self.gpus)}")


class Scaler:
    """Asks the rule at the end of each window, and carries out what it says."""

    def __init__(
        self,
        scaling: Scaling,
        plan: SchedulingPlan,
        core: SchedulingCore,
        clock: VirtualClock,
        horizon: int,
    ) -> None:
        """The windows end with `horizon` (microseconds)."""
        self._scaling = scaling
        self._scheduled = plan
        self._plan = PipelinePlan(metadata=ObjectMeta(name=plan.name, namespace="default"), spec=scaling.plan)
        self._core = core
        self._clock = clock
        self._horizon = horizon
        self._window = scaling.settings.window_seconds * 1_000_000
        self._space = Space(plan, scaling.gpus_per_node)
        self._targets = planned_targets(self._plan)
        self._replicas: dict[StageRef, list[WorkerPlacement]] = {
            ref: [self._space.add(ref) for _ in range(target.replicas)]
            for ref, target in ((_ref(target), target) for target in self._targets)
        }
        self._up = {ref: {place.worker for place in places} for ref, places in self._replicas.items()}
        """Replicas that have started, by name."""
        self._awake_since: int | None = 0
        """When every stage had a replica; None from when it sleeps until then."""
        self._gate: AdmissionGate | None = None
        self._looks = False
        self._changed_at: int | None = None
        self._before: Snapshot | None = None
        self._rates = {module.name: RateHistory() for module in plan.modules}
        self.steps: list[ScalingStep] = []

    @property
    def placed(self) -> list[WorkerPlacement]:
        """The replicas as planned."""
        return [place for places in self._replicas.values() for place in places]

    @property
    def width(self) -> int:
        """Samples that go at once where each ready replica runs a full batch; 0 while requests are held."""
        return 0 if self._awake_since is None else self._scheduled.width(self._up)

    def asked_for(self) -> None:
        """A request is held: the operator sees it at its next look."""
        if not self._looks:
            self._looks = True
            self._clock.at(self._clock.now + LOOK_MICROS, self._look)

    def gate(self, application: SimulatedApplication) -> AdmissionGate:
        """What holds the application's requests while there are no replicas."""
        self._gate = AdmissionGate(application, self._scaling.settings.scale_to_zero, self, self._clock)
        return self._gate

    def begin(self, cluster: EmulatedCluster) -> None:
        """Scale a cluster of the planned replicas from now on."""
        self._cluster = cluster
        self._before = self._snapshot()
        self.steps.append(ScalingStep(0.0, self._held(), len(self.placed), 0.0, 0.0, 1.0, "Replicas are as planned."))
        self._clock.at(self._window, self._step)

    def _look(self) -> None:
        self._looks = False
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
        held = self._held()
        decision = autoscale(
            scaling.settings,
            self._plan,
            self._targets,
            signals,
            {pool: scaling.gpus.get(pool, 0) - held.get(pool, 0) for pool in scaling.gpus.keys() | held.keys()},
            inf if self._changed_at is None else (now - self._changed_at) / 1e6,
            scaling.keeps_planned,
            self._rates,
            awake_seconds=0.0 if self._awake_since is None else (now - self._awake_since) / 1e6,
            slo_seconds=scaling.slo_seconds,
        )
        if decision.changed:
            self._changed_at = now
            self._targets = decision.targets
            for target in decision.targets:
                self._make(_ref(target), target.replicas)
            if not any(target.replicas for target in decision.targets):
                self._awake_since = None
        arrived, good, bad = _ended(before.core, after.core)
        self.steps.append(
            ScalingStep(
                now / 1e6,
                self._held(),
                sum(stage.ready for stage in signals.stages),
                arrived / seconds,
                bad / (good + bad) if good + bad else 0.0,
                signals.idle_fraction,
                decision.reason,
            )
        )

    def _make(self, ref: StageRef, wanted: int) -> None:
        """So many replicas of a stage, the youngest to go first."""
        replicas = self._replicas[ref]
        start_up = round(self._scaling.start_up_seconds * 1e6)
        while len(replicas) < wanted:
            replicas.append(self._space.add(ref))
            self._clock.at(self._clock.now + start_up, self._started, ref, replicas[-1])
        while len(replicas) > wanted:
            gone = replicas.pop().worker
            self._up[ref].discard(gone)
            self._space.remove(gone)
            self._cluster.retire(gone)

    def _started(self, ref: StageRef, place: WorkerPlacement) -> None:
        if place not in self._replicas[ref]:
            return
        self._cluster.add(place)
        self._up[ref].add(place.worker)
        if self._awake_since is None and all(self._up.values()):
            self._awake_since = self._changed_at = self._clock.now
        if self._gate is not None:
            self._gate.open()

    def _held(self) -> dict[str, int]:
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
    """Requests that arrived, ended well and ended badly between two snapshots."""

    def counted(signals: CoreSignals | None) -> tuple[int, int, int]:
        modules = signals.modules.values() if signals else ()
        return (
            sum(m.arrived for m in modules),
            sum(m.in_time for m in modules),
            sum(m.late + sum(m.dropped.values()) for m in modules),
        )

    arrived, good, bad = (then - earlier for then, earlier in zip(counted(after), counted(before), strict=True))
    return arrived, good, bad
