"""Which profiles a session needs, and how missing ones are made.

A session needs one profile for every module with a model on every usable pool, keyed by content. Existing profiles are
used, independent of the session that requested them. Runs of the profile runner make missing ones: at most
`profiling.attempts` runs, and the pause doubles after each failure. An annotation requests as many runs again, also
after a pause. After the first failure of a pair, planning no longer waits for it.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Final

from partita_api.conditions import MAX_MESSAGE
from partita_api.gpupool import GPUPool, SharingMode
from partita_api.inferencesession import InferenceSession
from partita_api.meta import RETRY_ANNOTATION
from partita_api.profile import ProfileRequest, ProfilingPhase, ProfilingProgress
from partita_api.session.module import Module
from partita_api.session.size_classes import size_classes
from partita_operator.pod_templates.profiled import profiled_pod
from partita_operator.pod_templates.session_pool import TemplateConflictError, session_pool
from partita_operator.ports import ProfileRun, RunPhase
from partita_operator.reconcile.actions import Action, RemoveProfileRun, StartProfile, StoreProfile
from partita_operator.reconcile.capacity.accounting import usable_pools
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.clock import seconds_since, timestamp
from partita_operator.reconcile.world import SessionWorld
from partita_operator.settings.model import OperatorSettings

MAX_PROGRESS: Final = 64
"""Most concurrent profiles of one session; the status lists all of them."""

Pair = tuple[str, str]
"""(module, pool)."""


@dataclass(frozen=True)
class RequiredProfiles:
    """The profiles that a session needs."""

    requests: Mapping[Pair, ProfileRequest]
    keys: Mapping[Pair, str]
    """Content keys of the requests."""
    without_curve: tuple[Pair, ...]
    """Pairs on an emulated pool that has no latency curve for the module."""


@dataclass(frozen=True)
class Profiling:
    """State of the session's profiles."""

    ready: Mapping[Pair, str] = field(default_factory=dict)
    """Content keys of existing profiles."""
    missing: Mapping[Pair, str] = field(default_factory=dict)
    """Pairs without a profile, finally or until another attempt succeeds, with the reason."""
    running: tuple[Pair, ...] = ()
    """Pairs that planning waits for."""
    waiting: Mapping[Pair, str] = field(default_factory=dict)
    """Those of them whose pod cannot start, with the reason."""
    modules_without: tuple[str, ...] = ()
    """Modules without a profile on any usable pool and without a first attempt in progress."""
    gives_up: bool = False
    """Whether one of `modules_without` has no attempt left anywhere."""
    by_quota: bool = False
    """Whether all of `modules_without` have no profile because the quotas exclude the namespace."""
    progress: tuple[ProfilingProgress, ...] = ()
    actions: tuple[Action, ...] = ()
    requeue_after: float | None = None
    """Seconds until the next attempt or timeout is due."""


def required_profiles(session: InferenceSession, cluster: Cluster, settings: OperatorSettings) -> RequiredProfiles:
    """The requests for all pairs of a module and a usable pool."""
    requests: dict[Pair, ProfileRequest] = {}
    without_curve: list[Pair] = []
    for declared, module in _models(session):
        for name, pool in _pools(session, cluster).items():
            curve = _curve((module.name, declared, "*"), pool)
            if curve is None and pool.spec.emulation and pool.spec.emulation.curves:
                without_curve.append((module.name, name))
            else:
                requests[module.name, name] = _request(session, module, pool, curve, settings)
    return RequiredProfiles(requests, {pair: request.key for pair, request in requests.items()}, tuple(without_curve))


def _models(session: InferenceSession) -> Iterator[tuple[str, Module]]:
    """The size classes of all modules with a model, each with the name of its module."""
    for module in session.spec.modules:
        if module.model is not None:
            yield from ((module.name, each.module) for each in size_classes(module))


def _pools(session: InferenceSession, cluster: Cluster) -> dict[str, GPUPool]:
    """The usable pools with the session's pod template; without those that it does not fit, which are a problem."""
    pools: dict[str, GPUPool] = {}
    for name, pool in usable_pools(session, cluster.pools).items():
        with contextlib.suppress(TemplateConflictError):
            pools[name] = session_pool(pool, session.spec.pod_template)
    return pools


def required_profile_keys(session: InferenceSession, cluster: Cluster, settings: OperatorSettings) -> frozenset[str]:
    """Content keys of all profiles that the session needs, or that one of its plans was made from."""
    required = set(required_profiles(session, cluster, settings).keys.values())
    planned = {ref.key for plan in cluster.plans_of(session).values() for ref in plan.spec.profiles}
    return frozenset(required | planned)


def assess_profiles(world: SessionWorld, now: datetime) -> Profiling:
    """State of the session's profiles, and the actions for missing ones."""
    required = required_profiles(world.session, world.cluster, world.settings)
    missing: dict[str, tuple[Pair, ProfileRequest]] = {}
    for pair, key in required.keys.items():
        if key not in world.profiles:
            missing.setdefault(key, (pair, required.requests[pair]))
    asked = retry_asked_for(world.session)
    retry = asked is not None and asked != world.session.status.last_handled_retry
    progress, actions = _finished_runs(world, missing)
    known = {p.key: p for p in world.session.status.profiling}
    for key, (pair, request) in missing.items():
        if len(progress) == MAX_PROGRESS:
            break
        before = known.get(key)
        if before is None or before.phase is ProfilingPhase.GIVEN_UP:
            before = _shared_progress(world, key) or before
        present = (*known.values(), *progress)
        if before is None and (_cores_busy(world, request.pool, present) or _quota_used(world, request, present)):
            continue  # it starts when an earlier run has ended
        if before is not None and retry and before.phase is not ProfilingPhase.RUNNING:
            actions += _remove(world, before)
            before = before.model_copy(update={"phase": ProfilingPhase.WAITING, "attempt": 0})
        if before is not None and before.phase is ProfilingPhase.WAITING and _quota_used(world, request, present):
            progress.append(before)
            continue
        after, does = _step(pair, request, before, world, now)
        progress.append(after)
        actions += does
    return _summary(required, world, tuple(progress), tuple(actions), now)


def _finished_runs(world: SessionWorld, missing: Mapping[str, object]) -> tuple[list[ProfilingProgress], list[Action]]:
    """Runs whose profile exists or is no longer needed; they stay in the status until they are removed."""
    progress: list[ProfilingProgress] = []
    actions: list[Action] = []
    for old in world.session.status.profiling:
        if old.key not in missing and _run(world, old).phase is not RunPhase.ABSENT:
            if old.key not in world.profiles and _shared_progress(world, old.key):
                continue
            progress.append(old)
            actions.append(RemoveProfileRun(old.key, old.attempt))
    return progress, actions


def unneeded_runs(world: SessionWorld) -> tuple[Action, ...]:
    """Actions that remove the session's runs that no other session of its namespace needs."""
    return tuple(
        RemoveProfileRun(p.key, p.attempt) for p in world.session.status.profiling if not _shared_progress(world, p.key)
    )


def _request(
    session: InferenceSession,
    module: Module,
    pool: GPUPool,
    curve: tuple[int, int] | None,
    settings: OperatorSettings,
) -> ProfileRequest:
    assert module.model is not None
    planner, sharing, emulation = session.spec.planner, pool.spec.sharing, pool.spec.emulation
    divided = sharing.mode is SharingMode.MPS
    return ProfileRequest(
        model=module.model,
        input=module.input,
        inputs=module.inputs,
        blocks=planner.blocks,
        batch_sizes=tuple(1 << power for power in range(planner.max_batch_size.bit_length())),
        divisors=tuple(range(1, sharing.max_divisor + 1)) if divided else (1,),
        pool=pool.metadata.name,
        backend=str(session.spec.execution.backend),
        slowdown=float(emulation.slowdown) if emulation and emulation.slowdown is not None else None,
        curve=curve,
        versions=dict(sorted(settings.profiling.versions.items())),
        pod=profiled_pod(pool, session.spec.pod_template),
    )


def _curve(names: Iterable[str], pool: GPUPool) -> tuple[int, int] | None:
    """The pool's latency curve of the first of these names that has one."""
    curves = {c.model: c for c in pool.spec.emulation.curves} if pool.spec.emulation else {}
    curve = next((curves[name] for name in names if name in curves), None)
    return (curve.alpha_micros, curve.beta_micros) if curve else None


def _step(
    pair: Pair,
    request: ProfileRequest,
    old: ProfilingProgress | None,
    world: SessionWorld,
    now: datetime,
) -> tuple[ProfilingProgress, list[Action]]:
    """The next state of a missing profile."""
    pool = session_pool(world.cluster.pools[request.pool], world.session.spec.pod_template)
    if old is None:
        return _begin(pair, request, 1, pool, now)
    run = _run(world, old)
    if old.phase is ProfilingPhase.RUNNING:
        return _follow(request, pool, old, run, world.settings, now)
    due = old.phase is ProfilingPhase.WAITING and not _seconds_left(old, world.settings, now)
    if (due or run.phase is RunPhase.RUNNING) and (removal := _remove(world, old)):
        return old, removal
    if due:
        return _begin(pair, request, old.attempt + 1, pool, now)
    return old, []


def _remove(world: SessionWorld, progress: ProfilingProgress) -> list[Action]:
    """Remove the last run of a profile, if it is still there."""
    if _run(world, progress).phase is RunPhase.ABSENT:
        return []
    return [RemoveProfileRun(progress.key, progress.attempt)]


def _begin(
    pair: Pair, request: ProfileRequest, attempt: int, pool: GPUPool, now: datetime
) -> tuple[ProfilingProgress, list[Action]]:
    begun = ProfilingProgress(
        module=pair[0],
        pool=pair[1],
        key=request.key,
        attempt=attempt,
        phase=ProfilingPhase.RUNNING,
        last_transition_time=timestamp(now),
    )
    return begun, [StartProfile(request, pool, attempt)]


def _follow(
    request: ProfileRequest,
    pool: GPUPool,
    old: ProfilingProgress,
    run: ProfileRun,
    settings: OperatorSettings,
    now: datetime,
) -> tuple[ProfilingProgress, list[Action]]:
    """The next state of a profile whose run is in progress."""
    if run.phase is RunPhase.SUCCEEDED:
        wrong = run.profile.differences(request) if run.profile is not None else ("it has no profile",)
        if run.profile is not None and not wrong:
            return old, [StoreProfile(run.profile)]
        message = f"The run's result is not a profile of its request: {'; '.join(wrong)}."
        return _failed(old, f"{message} Check that its image has the operator's version.", settings, now), []
    if run.phase is RunPhase.FAILED:
        return _failed(old, run.message, settings, now), []
    if seconds_since(old.last_transition_time, now) > settings.profiling.timeout_seconds:
        message = f"It did not finish within {settings.profiling.timeout_seconds} s. {run.message}".strip()
        return _failed(old, message, settings, now), [RemoveProfileRun(old.key, old.attempt)]
    if run.phase is RunPhase.ABSENT:
        return old, [StartProfile(request, pool, old.attempt)]
    return old.model_copy(update={"message": run.message[:MAX_MESSAGE]}), []


def _failed(old: ProfilingProgress, message: str, settings: OperatorSettings, now: datetime) -> ProfilingProgress:
    phase = ProfilingPhase.GIVEN_UP if old.attempt >= settings.profiling.attempts else ProfilingPhase.WAITING
    # The end of a log has the most information.
    return old.model_copy(
        update={"phase": phase, "last_transition_time": timestamp(now), "message": message[-MAX_MESSAGE:]}
    )


def _summary(
    required: RequiredProfiles,
    world: SessionWorld,
    progress: tuple[ProfilingProgress, ...],
    actions: tuple[Action, ...],
    now: datetime,
) -> Profiling:
    by_key = {p.key: p for p in progress}
    ready: dict[Pair, str] = {}
    missing = {pair: f"pool {pair[1]} has no emulation.curves entry for it; add one" for pair in required.without_curve}
    excluded: set[Pair] = set()
    running: list[Pair] = []
    waiting: dict[Pair, str] = {}
    retryable: set[str] = set()
    for pair, key in required.keys.items():
        found = by_key.get(key)
        if key in world.profiles:
            ready[pair] = key
        elif found is None and _quota(world, pair[1]) == 0:
            missing[pair] = f"the quota of its namespace in pool {pair[1]} is 0 accelerators; raise it in spec.quotas"
            excluded.add(pair)
        elif found is None or (found.phase is ProfilingPhase.RUNNING and found.attempt == 1):
            running.append(pair)
            if found is not None and _run(world, found).waits:
                waiting[pair] = found.message
        else:
            attempts = f"attempt {found.attempt} of {world.settings.profiling.attempts}"
            missing[pair] = f"{attempts if found.attempt else 'before another attempt'}: {found.message}"
        if found is not None and found.phase is not ProfilingPhase.GIVEN_UP:
            retryable.add(pair[0])
    models = [module.name for _, module in _models(world.session)]
    without = tuple(m for m in models if all(m != module for module, _ in (*ready, *running)))
    due = [
        _seconds_left(p, world.settings, now)
        for p in progress
        if p.key not in world.profiles and p.phase is not ProfilingPhase.GIVEN_UP
    ]
    return Profiling(
        ready=ready,
        missing=missing,
        running=tuple(running),
        waiting=waiting,
        modules_without=without,
        gives_up=any(module not in retryable for module in without),
        by_quota=bool(without) and {pair for pair in missing if pair[0] in without} <= excluded,
        progress=progress,
        actions=actions,
        requeue_after=min(due, default=None),
    )


def _seconds_left(progress: ProfilingProgress, settings: OperatorSettings, now: datetime) -> float:
    running = progress.phase is ProfilingPhase.RUNNING
    whole = settings.profiling.timeout_seconds if running else _backoff(progress.attempt, settings)
    return max(0.0, whole - seconds_since(progress.last_transition_time, now))


def _backoff(attempt: int, settings: OperatorSettings) -> float:
    """Seconds between the end of a failed run and the next one."""
    return float(settings.profiling.backoff_seconds * 2 ** max(0, attempt - 1))


def retry_asked_for(session: InferenceSession) -> str | None:
    """The last value of the annotation that requests another attempt."""
    asked = session.metadata.annotations.get(RETRY_ANNOTATION)
    return asked[:1024] if asked is not None else None


def _run(world: SessionWorld, progress: ProfilingProgress) -> ProfileRun:
    return world.runs.get((progress.key, progress.attempt), ProfileRun(RunPhase.ABSENT))


def _cores_busy(world: SessionWorld, pool: str, own: Iterable[ProfilingProgress]) -> bool:
    """Whether a run on a pool of CPU cores has to wait for another: concurrent runs would slow each other down."""
    if world.cluster.pools[pool].spec.sharing.mode is not SharingMode.CPU:
        return False
    return bool(_running(world, pool, own, world.cluster.sessions.values()))


def _quota_used(world: SessionWorld, request: ProfileRequest, own: Iterable[ProfilingProgress]) -> bool:
    """Whether the namespace has as many runs on the pool as its quota has accelerators; each run takes one."""
    quota = _quota(world, request.pool)
    if quota is None:
        return False
    of_namespace = [s for s in world.cluster.sessions.values() if s.namespace == world.session.namespace]
    return len(_running(world, request.pool, own, of_namespace) - {request.key}) >= quota


def _running(
    world: SessionWorld, pool: str, own: Iterable[ProfilingProgress], sessions: Iterable[InferenceSession]
) -> set[str]:
    """The keys of the runs in progress on a pool: this session's are in `own`, those of others in their statuses."""
    others = (other.status.profiling for other in sessions if other.key != world.session.key)
    return {
        progress.key
        for progress in chain(own, *others)
        if progress.pool == pool and progress.phase is ProfilingPhase.RUNNING and progress.key not in world.profiles
    }


def _quota(world: SessionWorld, pool: str) -> int | None:
    """The quota of the session's namespace in the pool, in accelerators; None if there is none."""
    return world.cluster.pools[pool].spec.quota(world.session.namespace)


def _shared_progress(world: SessionWorld, key: str) -> ProfilingProgress | None:
    """The state of the same profile in another session of the namespace: they share its runs."""
    for other in world.cluster.sessions.values():
        if (
            other.key != world.session.key
            and other.metadata.namespace == world.session.metadata.namespace
            and other.metadata.deletion_timestamp is None
        ):
            for progress in other.status.profiling:
                if progress.key == key and progress.phase is not ProfilingPhase.GIVEN_UP:
                    return progress
    return None
