"""Observes everything that the reconciliation of a session or a pool needs."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_operator.handlers.context import Context
from partita_operator.kube.devices import device_offer
from partita_operator.kube.errors import ApiError, refusal
from partita_operator.kube.nodes import selected_nodes
from partita_operator.kube.resources import ConfigMapResource
from partita_operator.kube.retries import retried
from partita_operator.kube.secrets import read_secret
from partita_operator.kube.writes import read
from partita_operator.ports import (
    EngineUnavailableError,
    PartitionerError,
    ProfileRun,
    RunPhase,
    ServingSignals,
    ServingStatus,
)
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.pool.gpu_labels import DRAINING
from partita_operator.reconcile.session.client_access import forbidden_clients, issuer_to_read, secret_name
from partita_operator.reconcile.session.exposure.decision import needed_objects
from partita_operator.reconcile.session.measured import with_counted_traffic
from partita_operator.reconcile.session.planning import with_measured_rate
from partita_operator.reconcile.session.profiling.profiles import required_profile_keys
from partita_operator.reconcile.world import (
    ClientsWorld,
    ExposureWorld,
    IssuerKeys,
    Node,
    PartitionerWorld,
    PoolWorld,
    PublicWorld,
    QualityWorld,
    SessionWorld,
)

ENGINE_TIMEOUT_S: Final = 30.0
"""An engine that does not answer within this time counts as unavailable."""


@dataclass(frozen=True)
class _EngineAnswer:
    serving: ServingStatus | None
    signals: ServingSignals | None = None
    has_applications: bool = False
    problem: str = ""


async def observe_session(session: InferenceSession, cluster: Cluster, context: Context) -> SessionWorld:
    """The input of the session's reconciler, even if the engine is unavailable. Raises ApiServerUnavailableError."""
    memory = context.memory(session.key)
    namespace = session.namespace
    engine, profiles, runs = await asyncio.gather(
        _engine_answer(session, context),
        context.profiles.load(namespace, required_profile_keys(session, cluster, context.settings)),
        _observe_runs(namespace, session, context),
    )
    seconds = asyncio.get_running_loop().time()
    memory.rates = with_measured_rate(memory.rates, session, engine.signals, seconds)
    memory.traffic = with_counted_traffic(memory.traffic, session, engine.signals, seconds)
    return SessionWorld(
        session=session,
        cluster=cluster,
        settings=context.settings,
        profiles=profiles,
        runs=runs,
        serving=engine.serving,
        has_applications=engine.has_applications,
        signals=engine.signals,
        rates=memory.rates,
        traffic=memory.traffic,
        search=context.searches.last(session.key),
        exposure=await _exposure_world(session, engine.serving, context),
        clients=await _clients_world(session, context),
        quality=await _quality_world(session, context),
        problem=engine.problem or memory.problem,
    )


async def observe_pool(pool: GPUPool, cluster: Cluster, context: Context) -> PoolWorld:
    """The input of the pool's reconciler, even if the engine is unavailable. Raises ApiServerUnavailableError."""
    nodes = await selected_nodes(context.client, pool.node_selector)
    devices = pool.spec.devices
    offer = await device_offer(context.client, devices) if devices is not None else None
    capacity: Mapping[str, float] | None = None
    problem = ""
    if pool.spec.count is None and pool.spec.elastic is None and not nodes and offer is None:
        try:
            async with asyncio.timeout(ENGINE_TIMEOUT_S):
                capacity = await context.engines.known()[0].capacity()
        except (EngineUnavailableError, TimeoutError) as error:
            problem = _explain(error)
    partitioner = await _partitioner_world(pool, nodes, context)
    return PoolWorld(pool, cluster, context.settings, nodes, capacity, problem, partitioner, offer)


async def _partitioner_world(pool: GPUPool, nodes: Iterable[Node], context: Context) -> PartitionerWorld:
    failed = context.pool_problems.get(pool.metadata.name, "")
    if context.partitioner is None or pool.spec.mig is None:
        return PartitionerWorld(problem=failed)
    try:
        published = await context.partitioner.published()
        replicas = {n.name: await context.partitioner.replicas(n.name) for n in nodes if DRAINING in n.labels}
    except PartitionerError as error:
        return PartitionerWorld(problem=str(error))
    return PartitionerWorld(published, replicas, failed)


async def _engine_answer(session: InferenceSession, context: Context) -> _EngineAnswer:
    engine, key = context.engines.of(session), session.key
    try:
        async with asyncio.timeout(ENGINE_TIMEOUT_S):
            serving = await engine.observe(key)
            signals = await engine.signals(key)
            deleted = session.metadata.deletion_timestamp is not None
            answer = _EngineAnswer(serving, signals, deleted and key in await engine.sessions())
    except (EngineUnavailableError, TimeoutError) as error:
        answer = _EngineAnswer(None, problem=_explain(error))
    context.metrics.engine_answered(key, answer.serving is not None)
    context.metrics.measured(key, answer.signals.reported if answer.signals is not None else None)
    return answer


async def _exposure_world(
    session: InferenceSession, serving: ServingStatus | None, context: Context
) -> ExposureWorld | None:
    """The objects of the session; None until they are listed."""
    objects, failed = context.objects, context.memory(session.key).exposure_problem
    if objects is None:
        return None
    if not objects.listed(session.namespace):
        problem = objects.problem(session.namespace)
        return ExposureWorld(problem=problem) if problem else None
    try:
        async with asyncio.timeout(ENGINE_TIMEOUT_S):
            backend = await context.engines.of(session).backend(session.key, serving)
    except (EngineUnavailableError, TimeoutError):
        backend = None  # the condition RolledOut reports it
    public = await context.prerequisites.of(session) if context.prerequisites is not None else PublicWorld()
    present = objects.of(session)
    found = ExposureWorld(backend, present, problem=failed, kinds=objects.kinds(session.namespace), public=public)
    needed = needed_objects(session, context.settings.exposure) if backend is not None else ()
    try:
        return replace(found, taken=await objects.taken(session, needed))
    except ApiError as error:
        return replace(found, backend=None, problem=f"Partita may not read the session's objects: {error}.")


async def _clients_world(session: InferenceSession, context: Context) -> ClientsWorld:
    """The session's API keys, and its issuer's public keys. Only what the platform allows is read."""
    name, read_issuer = secret_name(session), issuer_to_read(session)
    if forbidden_clients(session, context.settings.clients):
        return ClientsWorld()
    issuer = context.issuers.keys(read_issuer) if read_issuer is not None else IssuerKeys()
    if name is None:
        return ClientsWorld(issuer=issuer)
    try:
        return ClientsWorld(await read_secret(context.client, session.namespace, name), issuer=issuer)
    except ApiError as error:
        remedy = "Upgrade the Helm release, which adds the right for the names in clients.allowedSecrets."
        problem = refusal(f"read Secret {session.namespace}/{name}", error, remedy)
        return ClientsWorld(problem=problem, issuer=issuer)


async def _quality_world(session: InferenceSession, context: Context) -> QualityWorld:
    """The samples of the session's quality check, and its last check."""
    quality = session.spec.quality
    if quality is None:
        context.checks.cancel(session.key)
        return QualityWorld()
    check, name = context.checks.last(session.key), quality.samples.config_map
    try:
        found = await retried(lambda: read(context.client, ConfigMapResource, session.namespace, name))
    except ApiError as error:
        remedy = "Upgrade the Helm release, which adds the right."
        return QualityWorld(problem=refusal(f"read ConfigMap {session.namespace}/{name}", error, remedy), check=check)
    return QualityWorld(((found or {}).get("data") or {}).get(quality.samples.key), check=check)


async def _observe_runs(
    namespace: str, session: InferenceSession, context: Context
) -> dict[tuple[str, int], ProfileRun]:
    known = session.status.profiling
    runs = await asyncio.gather(*(_observe_run(namespace, p.key, p.attempt, context) for p in known))
    return {(p.key, p.attempt): run for p, run in zip(known, runs, strict=True)}


async def _observe_run(namespace: str, key: str, attempt: int, context: Context) -> ProfileRun:
    """The state of a run. One that cannot be observed counts as running: no run starts twice."""
    try:
        async with asyncio.timeout(ENGINE_TIMEOUT_S):
            return await context.runner.observe(namespace, key, attempt)
    except (EngineUnavailableError, TimeoutError) as error:
        return ProfileRun(RunPhase.RUNNING, message=_explain(error))


def _explain(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"The serving engine did not answer within {ENGINE_TIMEOUT_S:g} s."
    return str(error)
