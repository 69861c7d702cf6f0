"""The autoscaler in the loop of a simulation: replicas come and go by the rule that the operator follows."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from partita_api.inferencesession import Autoscaling
from partita_api.meta import ObjectMeta
from partita_api.pipelineplan import PipelinePlan, PipelinePlanSpec
from partita_runtime.autoscaling.load_level import RateHistory
from partita_runtime.autoscaling.replicas import autoscale, planned_targets
from partita_runtime.autoscaling.stages import StageTarget
from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import StageRef
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.signals import CoreSignals
from partita_runtime.serving.signals import Situation, Snapshot, session_signals
from partita_runtime.simulation.clock import VirtualClock
from partita_runtime.simulation.cluster import EmulatedCluster
from partita_runtime.simulation.placement import Placement, Space
from partita_runtime.simulation.report import ScalingStep


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
        self._replicas: dict[StageRef, list[Placement]] = {
            ref: [self._space.add(ref) for _ in range(target.replicas)]
            for ref, target in ((_ref(target), target) for target in self._targets)
        }
        self._changed_at: int | None = None
        self._before: Snapshot | None = None
        self._rates = {module.name: RateHistory() for module in plan.modules}
        self.steps: list[ScalingStep] = []

    @property
    def placed(self) -> list[Placement]:
        """The replicas as planned."""
        return [place for places in self._replicas.values() for place in places]

    def begin(self, cluster: EmulatedCluster) -> None:
        """Scale a cluster of the planned replicas from now on."""
        self._cluster = cluster
        self._before = self._snapshot()
        self.steps.append(ScalingStep(0.0, self._held(), len(self.placed), 0.0, 0.0, 1.0, "Replicas are as planned."))
        self._clock.at(self._window, self._step)

    def _step(self) -> None:
        now, scaling = self._clock.now, self._scaling
        before, after = self._before or self._snapshot(), self._snapshot()
        self._before = after
        signals = session_signals(Situation("simulated", self._scheduled), before, after, ())
        for name, arrived in _arrived(before.core, after.core).items():
            self._rates[name] = self._rates[name].add(now / 1e6, arrived * 1e6 / self._window)
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
        )
        if decision.changed:
            self._changed_at = now
            self._targets = decision.targets
            for target in decision.targets:
                self._make(_ref(target), target.replicas)
        arrived, good, bad = _ended(before.core, after.core)
        self.steps.append(
            ScalingStep(
                now / 1e6,
                self._held(),
                sum(stage.ready for stage in signals.stages),
                arrived * 1e6 / self._window,
                bad / (good + bad) if good + bad else 0.0,
                signals.idle_fraction,
                decision.reason,
            )
        )
        if now + self._window <= self._horizon:
            self._clock.at(now + self._window, self._step)

    def _make(self, ref: StageRef, wanted: int) -> None:
        """So many replicas of a stage, the youngest to go first."""
        replicas = self._replicas[ref]
        start_up = round(self._scaling.start_up_seconds * 1e6)
        while len(replicas) < wanted:
            replicas.append(self._space.add(ref))
            self._clock.at(self._clock.now + start_up, self._started, ref, replicas[-1])
        while len(replicas) > wanted:
            gone = replicas.pop().worker
            self._space.remove(gone)
            self._cluster.retire(gone)

    def _started(self, ref: StageRef, place: Placement) -> None:
        if place in self._replicas[ref]:
            self._cluster.add(place)

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
