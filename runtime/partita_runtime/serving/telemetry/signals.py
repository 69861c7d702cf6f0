"""The signals of a session over its autoscaling window, computed from snapshots of counters. Pure."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Reversible
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from typing import Final

import numpy as np

from partita_api.meta import StatusModel
from partita_runtime.autoscaling.latency import latencies_of, percentile
from partita_runtime.autoscaling.traffic import TrafficCounts
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.signals import CoreSignals, CoreStageSignals

FAR_OFF: Final = 3
"""Warn if executions take this many times longer, or shorter, than in the profile."""
LINK_OFF: Final = 1.5
"""Warn if transfers take this many times longer, or shorter, than with the declared bandwidth."""
_LINK_SHARE: Final = 0.02
"""... and if the difference is at least this share of the module's budget: else it is irrelevant."""
MAX_LATENCIES: Final = 200_000
"""Most latencies that are kept for percentiles."""


class Outcome(StrEnum):
    """How an accepted sample of a request ended. All but IN_TIME, CANCELLED and REFUSED are bad."""

    IN_TIME = "in_time"
    LATE = "late"
    TOO_LATE = "too_late"
    """Dropped: it would have missed its deadline."""
    OVERLOAD = "overload"
    """Dropped early, or refused, because of too many requests."""
    NO_WORKERS = "no_workers"
    """A module had no replicas."""
    FAILED = "failed"
    """A model or function failed, a replica was lost, or the coordinator was away."""
    CANCELLED = "cancelled"
    """The client left."""
    REFUSED = "refused"
    """A function refused what the client sent."""


class SessionStageSignals(StatusModel):
    """One stage of the serving plan over the window."""

    module: str
    pipeline: str
    stage: int
    pool: str
    planned: int
    """Replicas in the plan."""
    ready: int
    """Replicas that take batches now."""
    idle_fraction: float
    """Share of the replicas' time without work (Symphony's f)."""
    bad_rate: float
    """Share of the module's sub-requests that were dropped or late (Symphony's r)."""
    predicted_micros: float
    """Mean execution time of a batch by the profile, for the batches that were run."""
    actual_micros: float
    """Mean execution time as reported by the replicas."""
    declared_transfer_micros: float = 0.0
    """Mean time of a transfer from the stage before with the declared bandwidth, for the batches that were sent."""
    actual_transfer_micros: float = 0.0
    """Mean time as measured; 0 if none was sent over the network."""
    link_latency_micros: float = 0.0
    """Estimated latency of the network from the stage before."""
    link_bits_per_second: float = 0.0
    """Its estimated bandwidth."""


class EndpointSignals(StatusModel):
    """The calls of one endpoint over the window, with the time that they waited for a place."""

    module: str
    p50_ms: float
    p99_ms: float


class SessionSignals(StatusModel):
    """A session over the window. A request of n samples counts as n requests."""

    session: str
    window_seconds: float
    plan: str | None
    """The current plan; the previous one for as long as requests finish on it."""
    next_plan: str | None
    """The pending plan, which serves once its replicas are ready."""
    message: str
    """Why the frontend does not serve, or does not move to the pending plan; empty if all is well."""
    grpc_address: str | None = None
    """host:port where the frontend answers by gRPC, if it does; of several frontends, separated by commas."""
    http_address: str | None = None
    """host:port where it answers by HTTP itself, if it does."""
    can_make_place: bool = False
    """Whether all replicas that do not share their vGPU can be moved to another node."""
    warnings: tuple[str, ...] = ()
    """Deviations from the plan, such as replicas on the CPU or wrong profiled times; each with its stage."""
    offered_rate: float
    """Requests per second that arrived."""
    goodput: float
    """Requests per second that were answered within the SLO."""
    bad_rate: float
    """Share of the requests that ended which were dropped, late or failed."""
    idle_fraction: float
    """Share of accelerator time without work."""
    p50_ms: float
    p99_ms: float
    batch_sizes: dict[int, int]
    """Batches that were dispatched, by size."""
    outcomes: dict[Outcome, int]
    """Requests that ended, by outcome."""
    stages: tuple[SessionStageSignals, ...]
    held: int = 0
    """Requests that wait for replicas. Requests that gave up count for another ten seconds."""
    idle_seconds: float = 0.0
    """Time since the last request."""
    traffic: TrafficCounts = TrafficCounts()
    endpoints: tuple[EndpointSignals, ...] = ()
    """Those that were called."""


@dataclass
class Meter:
    """Counts requests and keeps the latencies of the answered ones. Times are microseconds."""

    arrived: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    latencies: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=MAX_LATENCIES))
    """When a request was answered, and how long it took."""
    held: int = 0
    """Samples of requests that were held because there were no replicas."""
    held_micros: int = 0
    """For how long they were held, summed up."""
    cut_off: Counter[str] = field(default_factory=Counter)
    """Sub-requests beyond `fanOut.max`, by module."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Sub-requests of optional modules that failed, by module."""
    requests: Counter[Outcome] = field(default_factory=Counter)
    """Requests that ended, each counted once, whatever its number of samples."""
    request_micros: Counter[Outcome] = field(default_factory=Counter)
    """How long they took, summed up."""
    information: Counter[str] = field(default_factory=Counter)
    """Requests of clients other than inference, by operation."""
    size_classes: Counter[str] = field(default_factory=Counter)
    """Samples for models with size classes, by class."""
    versions: Counter[str] = field(default_factory=Counter)
    """Requests for other versions of the session, by VERSION/RESULT."""
    decided: Counter[str] = field(default_factory=Counter)
    """Answers at edges that vary (`Interface.varying`), by `decision_key`."""
    sent: Counter[str] = field(default_factory=Counter)
    """Sub-requests that these answers made, by `edge_key`."""
    endpoint_calls: Counter[str] = field(default_factory=Counter)
    """Calls of endpoints by how long they took, by `latency_key`."""
    shadows: Counter[str] = field(default_factory=Counter)
    """Copies of requests for shadow versions, by VERSION/RESULT."""
    logged: Counter[str] = field(default_factory=Counter)
    """Events of the request log, by what became of them."""
    unreported: "deque[tuple[Outcome, int, int]] | None" = None
    """Where a reporter takes the requests that have ended from (outcome, latency, samples); None without one."""

    @property
    def labelled(self) -> Mapping[str, Counter[str]]:
        """The counters by label, each under the name of its field: all of them are reported in the same way."""
        return {
            "cut_off": self.cut_off,
            "left_out": self.left_out,
            "information": self.information,
            "size_classes": self.size_classes,
            "versions": self.versions,
            "decided": self.decided,
            "sent": self.sent,
            "endpoint_calls": self.endpoint_calls,
            "shadows": self.shadows,
            "logged": self.logged,
        }

    def ended(self, outcome: Outcome, latency: int, now: int, samples: int) -> None:
        """`samples` of a request ended like this, `latency` after it had arrived."""
        self.outcomes[outcome] += samples
        self.requests[outcome] += 1
        self.request_micros[outcome] += latency
        if self.unreported is not None:
            self.unreported.append((outcome, latency, samples))
        if outcome in (Outcome.IN_TIME, Outcome.LATE):
            self.latencies.extend([(now, latency)] * samples)

    @property
    def traffic(self) -> TrafficCounts:
        """What plans can be made for."""
        return TrafficCounts(
            decided=dict(self.decided),
            sent=dict(self.sent),
            endpoint_calls=dict(self.endpoint_calls),
            size_classes=dict(self.size_classes),
        )

    def forget(self, before: int) -> None:
        """Drop the latencies of requests that were answered before this time; no window needs them."""
        while self.latencies and self.latencies[0][0] < before:
            self.latencies.popleft()


@dataclass(frozen=True)
class Snapshot:
    """Counters at one moment."""

    at: int
    arrived: int
    outcomes: Mapping[Outcome, int]
    core: CoreSignals | None
    """The counters of the plan's scheduling core, if there is one."""
    source: str = ""
    """Id of the core. Counters of different cores cannot be compared."""
    endpoint_calls: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Situation:
    """The plans of a session, and why it does not serve the pending one."""

    session: str
    plan: SchedulingPlan | None = None
    """The plan to report."""
    next_plan: str | None = None
    message: str = ""


def session_signals(
    situation: Situation,
    before: Snapshot,
    after: Snapshot,
    latencies: Reversible[tuple[int, int]],
) -> SessionSignals:
    """The signals between two snapshots; `latencies` are pairs (time of the answer, latency), in order of time."""
    plan = situation.plan
    seconds = max(after.at - before.at, 1) / 1e6
    outcomes = {o: after.outcomes.get(o, 0) - before.outcomes.get(o, 0) for o in Outcome}
    ended = sum(n for outcome, n in outcomes.items() if outcome not in (Outcome.CANCELLED, Outcome.REFUSED))
    taken = [latency for _, latency in takewhile(lambda answer: answer[0] > before.at, reversed(latencies))]
    p50, p99 = np.percentile(taken, (50, 99)) / 1000 if taken else (0.0, 0.0)
    earlier = before.core if before.source == after.source else None
    stages = _stages(plan, earlier, after.core) if plan and after.core else ()
    weights = [(s.ready / _divisor(plan, s), s.idle_fraction) for s in stages if plan]
    total = sum(weight for weight, _ in weights)
    return SessionSignals(
        session=situation.session,
        window_seconds=seconds,
        plan=plan.name if plan else None,
        next_plan=situation.next_plan,
        message=situation.message,
        warnings=tuple(
            [text for stage in stages for text in (_far_off(stage), _link_off(stage, plan)) if text],
        ),
        offered_rate=(after.arrived - before.arrived) / seconds,
        goodput=outcomes[Outcome.IN_TIME] / seconds,
        bad_rate=(ended - outcomes[Outcome.IN_TIME]) / ended if ended else 0.0,
        idle_fraction=sum(weight * idle for weight, idle in weights) / total if total else 1.0,
        p50_ms=float(p50),
        p99_ms=float(p99),
        batch_sizes=_batch_sizes(earlier, after.core),
        outcomes={o: n for o, n in outcomes.items() if n},
        stages=stages,
        endpoints=_endpoints(before.endpoint_calls, after.endpoint_calls),
    )


def _endpoints(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[EndpointSignals, ...]:
    calls = {key: count - before.get(key, 0) for key, count in after.items() if count > before.get(key, 0)}
    found = []
    for module in sorted({key.partition("/")[0] for key in calls}):
        p50, p99 = (percentile(latencies_of(module, calls), share) / 1000 for share in (0.5, 0.99))
        found.append(EndpointSignals(module=module, p50_ms=p50, p99_ms=p99))
    return tuple(found)


def _far_off(stage: SessionStageSignals) -> str:
    """That batches take so much more or less time than the profile says that another plan would suit better.

    Without figures: it goes into a status, which is not to change with every measurement.
    """
    if not stage.predicted_micros or not stage.actual_micros:
        return ""
    ratio = stage.actual_micros / stage.predicted_micros
    if 1 / FAR_OFF < ratio < FAR_OFF:
        return ""
    amount = f"more than {FAR_OFF} times" if ratio > 1 else f"less than 1/{FAR_OFF} of"
    return (
        f"{stage.module}/{stage.pipeline}/{stage.stage}: batches take {amount} what the profile for pool {stage.pool} "
        "says. Scheduling uses the real time, but plans do not. To measure it again, delete the profile's ConfigMap."
    )


def _link_off(stage: SessionStageSignals, plan: SchedulingPlan | None) -> str:
    """That the network to a stage is so much slower or faster than declared that another plan would suit better."""
    declared, actual = stage.declared_transfer_micros, stage.actual_transfer_micros
    if plan is None or not declared or not actual or 1 / LINK_OFF < actual / declared < LINK_OFF:
        return ""
    module = next(module for module in plan.modules if module.name == stage.module)
    pipeline = next(pipeline for pipeline in module.pipelines if pipeline.name == stage.pipeline)
    if abs(actual - declared) < _LINK_SHARE * module.budget_micros:
        return ""
    pools = {pipeline.stages[stage.stage - 1].pool, stage.pool}
    slowest = min(pools, key=lambda pool: (plan.bandwidth.get(pool, float("inf")), pool))
    amount = f"more than {LINK_OFF} times" if actual > declared else "less than two thirds of"
    return (
        f"{stage.module}/{stage.pipeline}/{stage.stage}: transfers to it take {amount} what the bandwidth of pool "
        f"{slowest} says. Scheduling uses the real time, but plans do not. Set spec.bandwidth of the pool to metric "
        "partita_link_bandwidth_bits_per_second."
    )


def _stages(plan: SchedulingPlan, before: CoreSignals | None, after: CoreSignals) -> tuple[SessionStageSignals, ...]:
    described = []
    for ref, stage in plan.stages():
        counters = after.stages[ref]
        former = before.stages.get(ref) if before else None
        predicted, actual = _means(former, counters)
        declared, transferred = _transfer_means(former, counters)
        described.append(
            SessionStageSignals(
                module=ref.module,
                pipeline=ref.pipeline,
                stage=ref.stage,
                pool=stage.pool,
                planned=stage.replicas,
                ready=len(counters.workers),
                idle_fraction=_idle_fraction(before, after, counters.workers),
                bad_rate=_bad_rate(before, after, ref.module),
                predicted_micros=predicted,
                actual_micros=actual,
                declared_transfer_micros=declared,
                actual_transfer_micros=transferred,
                link_latency_micros=counters.link_latency_micros,
                link_bits_per_second=counters.link_bits_per_second,
            )
        )
    return tuple(described)


def _means(before: CoreStageSignals | None, after: CoreStageSignals) -> tuple[float, float]:
    executions = after.executions - (before.executions if before else 0)
    if not executions:
        return 0.0, 0.0
    predicted = after.predicted_micros - (before.predicted_micros if before else 0)
    actual = after.actual_micros - (before.actual_micros if before else 0)
    return predicted / executions, actual / executions


def _transfer_means(before: CoreStageSignals | None, after: CoreStageSignals) -> tuple[float, float]:
    transfers = after.transfers - (before.transfers if before else 0)
    if not transfers:
        return 0.0, 0.0
    declared = after.declared_transfer_micros - (before.declared_transfer_micros if before else 0)
    actual = after.actual_transfer_micros - (before.actual_transfer_micros if before else 0)
    return declared / transfers, actual / transfers


def _idle_fraction(before: CoreSignals | None, after: CoreSignals, workers: Iterable[str]) -> float:
    busy = total = 0
    for worker in workers:
        now = after.workers[worker]
        then = before.workers.get(worker) if before else None
        same = then is not None and then.since == now.since
        busy += now.busy_micros - (then.busy_micros if then and same else 0)
        total += after.now - (before.now if before and same else now.since)
    return min(1.0, max(0.0, 1 - busy / total)) if total > 0 else 1.0


def _bad_rate(before: CoreSignals | None, after: CoreSignals, module: str) -> float:
    def ended(signals: CoreSignals) -> tuple[int, int]:
        counters = signals.modules[module]
        return counters.in_time, counters.late + sum(counters.dropped.values())

    good, bad = ended(after)
    if before:
        earlier_good, earlier_bad = ended(before)
        good, bad = good - earlier_good, bad - earlier_bad
    return bad / (good + bad) if good + bad else 0.0


def _batch_sizes(before: CoreSignals | None, after: CoreSignals | None) -> dict[int, int]:
    sizes: Counter[int] = Counter()
    for pipeline in after.pipelines.values() if after else ():
        sizes.update(pipeline.batch_sizes)
    for pipeline in before.pipelines.values() if before else ():
        sizes.subtract(pipeline.batch_sizes)
    return {size: count for size, count in sorted(sizes.items()) if count > 0}


def _divisor(plan: SchedulingPlan, stage: SessionStageSignals) -> int:
    return next(
        pipeline.stages[stage.stage].vgpu_divisor
        for module in plan.modules
        for pipeline in module.pipelines
        if (module.name, pipeline.name) == (stage.module, stage.pipeline)
    )
