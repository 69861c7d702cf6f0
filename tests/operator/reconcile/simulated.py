"""A small cluster in memory on which the real reconcilers run, one pass at a time.

It replaces the handlers and the API server: it keeps statuses, finalizers and plans, and collects objects of deleted
sessions. It can kill the operator before any of its writes. Engine and runner are the doubles.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.operator.doubles import EngineDouble, RunnerDouble, one_stage_plan
from tests.operator.gitops.kstatus import disagreement

from partita_api.fields.quantity import Quantity
from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.meta import FINALIZER
from partita_api.pipelineplan import PipelinePlan
from partita_api.profile import Profile
from partita_api.quality import QualityResult
from partita_operator.ports import EngineUnavailableError
from partita_operator.reconcile.actions import (
    Action,
    AddFinalizer,
    ApplyServing,
    ApprovePlan,
    CancelSolve,
    CheckQuality,
    CreatePlan,
    DeletePlan,
    Event,
    ForgetProfile,
    KeepPlan,
    RemoveFinalizer,
    RemoveProfileRun,
    RemoveServing,
    Solve,
    StartProfile,
    StoreProfile,
)
from partita_operator.reconcile.capacity.accounting import available, fits
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.capacity.ledger import Ledger
from partita_operator.reconcile.clock import timestamp
from partita_operator.reconcile.pool.reconciler import reconcile_pool
from partita_operator.reconcile.session.measured import with_counted_traffic
from partita_operator.reconcile.session.planning import with_measured_rate
from partita_operator.reconcile.session.reconciler import reconcile_session
from partita_operator.reconcile.world import (
    ClientsWorld,
    Node,
    PlanCheck,
    PoolWorld,
    QualityWorld,
    Search,
    SessionWorld,
)
from partita_operator.settings.model import OperatorSettings, ProfilingSettings
from partita_planner.problem import Outcome, PlanningProblem
from partita_runtime.autoscaling.load_level import RateHistory
from partita_runtime.autoscaling.traffic import TrafficHistory

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class OperatorKilledError(Exception):
    """The operator was killed before a write."""


@dataclass
class SimulatedCluster:
    """The cluster and its operator."""

    pools: dict[str, GPUPool] = field(default_factory=dict)
    sessions: dict[str, InferenceSession] = field(default_factory=dict)
    plans: dict[str, PipelinePlan] = field(default_factory=dict)
    profiles: dict[tuple[str, str], Profile] = field(default_factory=dict)
    nodes: dict[str, tuple[Node, ...]] = field(default_factory=dict)
    """By pool."""
    engine: EngineDouble = field(default_factory=EngineDouble)
    runner: RunnerDouble = field(default_factory=RunnerDouble)
    solve: Callable[[PlanningProblem], Outcome] = one_stage_plan
    settings: OperatorSettings = field(
        default_factory=lambda: OperatorSettings(profiling=ProfilingSettings(backoff_seconds=20))
    )
    now: datetime = EPOCH
    events: list[tuple[str, Event]] = field(default_factory=list)
    problems: list[PlanningProblem] = field(default_factory=list)
    """All problems that the solver received."""
    made_plans: list[str] = field(default_factory=list)
    requeues: dict[str, float] = field(default_factory=dict)
    """Seconds until the next pass of each session, as last requested."""
    unreadable: dict[str, str] = field(default_factory=dict)
    clients: ClientsWorld = field(default_factory=ClientsWorld)
    """What there is to authenticate the clients of all sessions with."""
    samples: str | None = None
    """What the ConfigMap of every spec.quality has."""
    score: Callable[[CheckQuality], float | None] = lambda _: None
    """The metric of a plan's answers; None if it cannot be asked."""
    checked: list[str] = field(default_factory=list)
    """Plans whose answers were checked."""
    writes: int = 0
    writes_before_death: int | None = None
    _ledger: Ledger = field(default_factory=Ledger)
    _searches: dict[str, Search] = field(default_factory=dict)
    _checks: dict[str, PlanCheck] = field(default_factory=dict)
    _rates: dict[str, RateHistory] = field(default_factory=dict)
    _traffic: dict[str, TrafficHistory] = field(default_factory=dict)

    def add(self, *objects: GPUPool | InferenceSession) -> None:
        """Create or replace objects, as a user does; a changed spec is a new generation."""
        for new in objects:
            if isinstance(new, GPUPool):
                self.pools[new.metadata.name] = _replaced(self.pools.get(new.metadata.name), new, self.now)
            else:
                self.sessions[new.key] = _replaced(self.sessions.get(new.key), new, self.now)

    def delete(self, name: str) -> None:
        """Request the deletion of a pool (name) or a session (namespace/name)."""
        kept: dict[str, Any] = self.sessions if "/" in name else self.pools
        kept[name] = _with_meta(kept[name], deletion_timestamp=self.now.isoformat())

    def approve(self, name: str) -> None:
        """Approve a plan, as kubectl does."""
        self.plans[name] = _approved(self.plans[name])

    def session(self, name: str, namespace: str = "default") -> InferenceSession:
        """The present state of a session."""
        return self.sessions[f"{namespace}/{name}"]

    def condition(self, name: str, type: str) -> tuple[str, str]:
        """Status and reason of a session's condition."""
        found = next(c for c in self.session(name).status.conditions if c.type == type)
        return str(found.status), found.reason

    def restart(self) -> None:
        """Start a new operator without memory."""
        self._searches.clear()
        self._checks.clear()
        self._rates.clear()
        self._traffic.clear()
        self.writes_before_death = None

    def run(self, seconds: float, every: float = 1.0) -> None:
        """Repeat passes over everything."""
        for _ in range(max(1, round(seconds / every))):
            self.look_once()
            self.now += timedelta(seconds=every)

    def look_once(self) -> None:
        """One pass over every pool and then over every session."""
        for pool in sorted(self.pools):
            self.look_at_pool(pool)
        self.look_at_sessions()

    def look_at_sessions(self) -> None:
        """One pass over every session."""
        for session in sorted(self.sessions):
            _finish(self._pass_session(session))

    def outcome(self) -> dict[str, Any]:
        """The final state, without times."""
        return {
            "sessions": {k: _timeless(s.status.model_dump()) for k, s in self.sessions.items()},
            "plans": {k: (p.spec, _timeless(p.status.model_dump())) for k, p in self.plans.items()},
            "profiles": set(self.profiles),
            "runs": set(self.runner.runs),
            "serving": {k: (s.plan.metadata.name, s.targets) for k, s in self.engine.applied.items()},
        }

    def cluster(self) -> Cluster:
        plans = {f"{plan.metadata.namespace}/{name}": plan for name, plan in self.plans.items()}
        made = Cluster(dict(self.pools), dict(self.sessions), plans, dict(self.unreadable), self._ledger)
        self._ledger = made.ledger
        return made

    def _write(self) -> None:
        if self.writes_before_death is not None and self.writes >= self.writes_before_death:
            raise OperatorKilledError
        self.writes += 1

    def look_at_pool(self, name: str) -> None:
        pool = self.pools[name]
        decision = reconcile_pool(PoolWorld(pool, self.cluster(), self.settings, self.nodes.get(name, ())), self.now)
        _check(pool, decision.status)
        if decision.status != pool.status:
            self._write()
            self.pools[name] = pool.model_copy(update={"status": decision.status})
        self.events += [(name, event) for event in decision.events]
        for action in decision.actions:
            self._write()
            self.pools[name] = _with_finalizer(self.pools[name], isinstance(action, AddFinalizer))
            if isinstance(action, RemoveFinalizer):
                del self.pools[name]

    async def _pass_session(self, key: str) -> None:
        world = await self._observe(self.sessions[key])
        decision = reconcile_session(world, self.now)
        self.requeues[key] = decision.requeue_after
        _check(self.sessions[key], decision.status)
        for name, status in decision.plan_statuses.items():
            _check(self.plans[name], status)
            if status != self.plans[name].status:
                self._write()
                self.plans[name] = self.plans[name].model_copy(update={"status": status})
        if decision.status != self.sessions[key].status:
            self._write()
            self.sessions[key] = self.sessions[key].model_copy(update={"status": decision.status})
        self.events += [(key, event) for event in decision.events]
        for action in decision.actions:
            if self._changes_something(action, key):
                self._write()
            await self._carry_out(action, world)

    def _changes_something(self, action: Action, key: str) -> bool:
        """Whether a write changes the persistent state."""
        match action:
            case Solve() | CancelSolve() | CheckQuality():
                return False
            case ApplyServing(spec):
                applied = self.engine.applied.get(key)
                return applied is None or (applied.plan.metadata.name, applied.targets) != (
                    spec.plan.metadata.name,
                    spec.targets,
                )
        return True

    async def _observe(self, session: InferenceSession) -> SessionWorld:
        key, namespace = session.key, session.metadata.namespace or "default"
        serving, signals, has_applications, problem = None, None, False, ""
        try:
            serving, signals = await self.engine.observe(key), await self.engine.signals(key)
            has_applications = key in await self.engine.sessions()
        except EngineUnavailableError as error:
            problem = str(error)
        history, seconds = self._rates.get(key, RateHistory()), (self.now - EPOCH).total_seconds()
        self._rates[key] = with_measured_rate(history, session, signals, seconds)
        counted = self._traffic.get(key, TrafficHistory())
        self._traffic[key] = with_counted_traffic(counted, session, signals, seconds)
        return SessionWorld(
            session=session,
            cluster=self.cluster(),
            settings=self.settings,
            profiles={k: profile for (where, k), profile in self.profiles.items() if where == namespace},
            runs={
                (p.key, p.attempt): await self.runner.observe(namespace, p.key, p.attempt)
                for p in session.status.profiling
            },
            serving=serving,
            has_applications=has_applications,
            signals=signals,
            rates=self._rates[key],
            traffic=self._traffic[key],
            search=self._searches.get(key),
            clients=self.clients,
            quality=QualityWorld(self.samples, check=self._checks.get(key)),
            problem=problem,
        )

    async def _carry_out(self, action: Action, world: SessionWorld) -> None:
        session, key = world.session, world.session.key
        namespace = session.metadata.namespace or "default"
        match action:
            case AddFinalizer():
                self.sessions[key] = _with_finalizer(self.sessions[key], True)
            case RemoveFinalizer():
                del self.sessions[key]
                self._collect(session.metadata.uid)
            case StartProfile(request, pool, attempt):
                await self.runner.start(namespace, request, pool, attempt)
            case StoreProfile(profile):
                self.profiles[namespace, profile.key] = profile
            case ForgetProfile(profile_key):
                self.profiles.pop((namespace, profile_key), None)
            case RemoveProfileRun(profile_key, attempt):
                await self.runner.remove(namespace, profile_key, attempt)
            case Solve(question, problem):
                self.problems.append(problem)
                self._searches[key] = Search(question, self.solve(problem), self.now)
            case CancelSolve():
                self._searches.pop(key, None)
            case CheckQuality():
                self._checks[key] = self._check_of(action)
            case CreatePlan(plan):
                if fits(plan, available(self.sessions[key], self.cluster(), taking=True)):
                    meta = plan.metadata.model_copy(update={"generation": 1, "uid": f"plan-{len(self.made_plans)}"})
                    self.plans[plan.metadata.name] = plan.model_copy(update={"metadata": meta})
                    self.made_plans.append(plan.metadata.name)
            case KeepPlan(name, annotations):
                self.plans[name] = _with_meta(self.plans[name], annotations=dict(annotations))
            case ApprovePlan(name):
                self.plans[name] = _approved(self.plans[name])
            case DeletePlan(name):
                self.plans.pop(name, None)
            case ApplyServing(spec):
                await self.engine.apply(spec)
            case RemoveServing():
                await self.engine.remove(key)

    def _check_of(self, action: CheckQuality) -> PlanCheck:
        """A check that has ended at once."""
        self.checked.append(action.plan)
        score, quality = self.score(action), action.quality
        if score is None:
            return PlanCheck(action.plan, action.question, problem="There is no frontend.", finished=self.now)
        met = quality.metric.meets(score, float(quality.limit))
        result = QualityResult(
            question=action.question,
            met=met,
            metric=quality.metric,
            score=Quantity(score),
            limit=quality.limit,
            samples=1,
            time=timestamp(self.now),
        )
        return PlanCheck(action.plan, action.question, result, finished=self.now)

    def _collect(self, owner: str) -> None:
        """Remove objects as Kubernetes' garbage collector does."""
        self.plans = {name: plan for name, plan in self.plans.items() if plan.spec.session.uid != owner}


def started_runs(cluster: SimulatedCluster) -> list[tuple[str, int]]:
    """Pool and attempt of all runs."""
    pools = {key: request.pool for (_, key, _), request in cluster.runner.runs.items()}
    pools |= {profile.key: profile.request.pool for profile in cluster.profiles.values()}
    return [(pools.get(key, key), attempt) for _, key, attempt in cluster.runner.started]


def _check(found: GPUPool | InferenceSession | PipelinePlan, status: Any) -> None:
    """What GitOps tools read from the new status must be what it says."""
    if status != found.status:
        shown = found.model_copy(update={"status": status}).model_dump(mode="json", by_alias=True, exclude_none=True)
        assert not (problem := disagreement(shown)), problem


def _finish(steps: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits."""
    with suppress(StopIteration):
        steps.send(None)
        raise AssertionError("a double waited for something")


def _replaced(old: Any, new: Any, now: datetime) -> Any:
    meta = new.metadata.model_copy(
        update={"generation": 1, "creation_timestamp": now.isoformat(), "uid": new.metadata.uid or new.metadata.name}
    )
    if old is None:
        return new.model_copy(update={"metadata": meta})
    meta = old.metadata.model_copy(
        update={
            "generation": old.metadata.generation + (old.spec != new.spec),
            "labels": new.metadata.labels,
            "annotations": new.metadata.annotations,
        }
    )
    return new.model_copy(update={"metadata": meta, "status": old.status})


def _with_meta(owner: Any, **changes: Any) -> Any:
    return owner.model_copy(update={"metadata": owner.metadata.model_copy(update=changes)})


def _with_finalizer(owner: Any, present: bool) -> Any:
    return _with_meta(owner, finalizers=(FINALIZER,) if present else ())


def _approved(plan: PipelinePlan) -> PipelinePlan:
    meta = plan.metadata.model_copy(update={"generation": plan.metadata.generation + 1})
    return plan.model_copy(update={"metadata": meta, "spec": plan.spec.model_copy(update={"approved": True})})


_MOMENTS = ("last_transition_time", "last_scale_time", "scale_to_zero_time")


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in _MOMENTS}
    if isinstance(value, list | tuple):
        return [_timeless(item) for item in value]
    return value
