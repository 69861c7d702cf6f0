"""The operator: watches, queue, workers, metrics and health in one process."""

import asyncio
import logging
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any, Final

from partita_operator.handlers.admission import Admission
from partita_operator.handlers.context import Context
from partita_operator.handlers.leadership import Leadership, LeadershipLostError
from partita_operator.handlers.lease import LeaseStore
from partita_operator.handlers.metrics import Metrics
from partita_operator.handlers.passes import PassFailedError, process_pool, process_session, remove_leftovers
from partita_operator.handlers.plan_searches import PlanSearches
from partita_operator.handlers.quality_checks import QualityChecks
from partita_operator.handlers.watches import Webhook, watch
from partita_operator.handlers.workqueue import WorkQueue
from partita_operator.issuers.issuers import Issuers
from partita_operator.kube.cache import ClusterCache, Key, Kind, KindMissingError, key_of
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import Connection, load_config
from partita_operator.kube.exposure.prerequisites import Prerequisites
from partita_operator.kube.exposure.session_objects import SessionObjects, public_kinds
from partita_operator.kube.profiles import ProfileStore
from partita_operator.kube.retries import ApiServerUnavailableError
from partita_operator.kube.writes import ObjectWriter
from partita_operator.partitioning.mig_manager import MigManager
from partita_operator.ports import EngineUnavailableError, PlanSolver, ProfileRunner, ServingEngines
from partita_operator.reconcile.clock import MAX_PATIENCE_SECONDS
from partita_operator.settings.model import OperatorSettings
from partita_runtime.logs import about

logger = logging.getLogger(__name__)

WORKERS: Final = 8
SWEEP_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 1.0
"""Pause before the next attempt if the API server or the CustomResourceDefinitions are missing at the start."""


async def run_operator(
    settings: OperatorSettings,
    kubeconfig: Path | None,
    *,
    engines: ServingEngines,
    runner: ProfileRunner,
    solver: PlanSolver,
    stop: asyncio.Event,
) -> None:
    """Run the operator until `stop` is set.

    `kubeconfig` None means the pod's service account, else $KUBECONFIG or ~/.kube/config. The operator waits for the
    API server, the CustomResourceDefinitions and the engines. With a Lease, only the replica that holds it acts; the
    others watch. Raises NoClusterError if there is no usable configuration, and LeadershipLostError.
    """
    connection = await load_config(kubeconfig)
    metrics = Metrics()
    async with KubernetesClient(connection) as kubernetes:
        cache = ClusterCache(kubernetes, settings.namespaces)
        queue: WorkQueue[Key] = WorkQueue(rank=lambda key: _rank(key, cache), group=_namespace, on_taken=metrics.waited)
        metrics.watch_queue(lambda: len(queue))
        searches = PlanSearches(solver, metrics, on_answer=lambda session: queue.add((Kind.SESSION, session)))
        checks = QualityChecks(on_answer=lambda session: queue.add((Kind.SESSION, session)))
        election = settings.leader_election
        lease = LeaseStore(kubernetes, election.namespace, election.name) if election.name else None
        leadership = Leadership(lease, election.lease_duration_seconds)
        metrics.watch_leadership(lambda: leadership.leads)
        exposes, public = settings.kuberay.enabled, public_kinds(settings.exposure)
        context = Context(
            settings=settings,
            client=kubernetes,
            cache=cache,
            writer=ObjectWriter(kubernetes, cache),
            profiles=ProfileStore(kubernetes, settings.namespaces),
            engines=engines,
            runner=runner,
            searches=searches,
            checks=checks,
            metrics=metrics,
            leadership=leadership,
            objects=SessionObjects(kubernetes, settings.namespaces, public) if exposes else None,
            prerequisites=Prerequisites(kubernetes, settings.exposure) if exposes else None,
            issuers=Issuers(settings.clients.issuers),
            partitioner=MigManager(kubernetes, settings.mig) if settings.mig.enabled else None,
        )
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(_work(connection, context, queue), name="work"),
            asyncio.create_task(stop.wait(), name="stop"),
        ]
        with metrics.served(settings.metrics.port):
            try:
                ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    task.result()  # raises what the task ended with
            finally:
                await _end(tasks)
                await searches.close()
                await checks.close()
                await leadership.release()


def _namespace(key: Key) -> str:
    """The namespace of a session; empty for pools. Keys of one namespace never take all workers."""
    kind, name = key
    return name.partition("/")[0] if kind is Kind.SESSION else ""


def _rank(key: Key, cache: ClusterCache) -> float:
    """Pools first, because sessions wait for them; then sessions of higher priority, because others yield to them."""
    if key[0] is not Kind.SESSION:
        return -inf
    raw = cache.last_seen(key)
    return -raw["spec"].get("priority", 0) if raw is not None else 0


class _EventHandler:
    """Stores watched objects in the cache, and queues the keys to reconcile.

    The operator's own writes come back as events, too; they are recognized and queue nothing.
    """

    def __init__(self, cache: ClusterCache, queue: WorkQueue[Key]) -> None:
        self._cache = cache
        self._queue = queue
        self._fingerprints: dict[Key, Any] = {}

    def handle(self, kind: Kind, type: str | None, raw: dict[str, Any]) -> None:
        """An object was listed, added, modified or deleted."""
        key = key_of(kind, raw)
        if type == "DELETED":
            self._cache.forget(key)
            self._fingerprints.pop(key, None)
        else:
            self._cache.put(kind, raw)
            fingerprint = _fingerprint(raw)
            if self._fingerprints.get(key) == fingerprint:
                return
            self._fingerprints[key] = fingerprint
        if kind is Kind.PLAN:
            session = raw.get("spec", {}).get("session", {}).get("name")
            self._queue.add((Kind.SESSION, f"{raw['metadata']['namespace']}/{session}"))
            return
        self._queue.add(key)
        if kind is Kind.POOL:
            for other in self._cache.known:
                if other[0] is Kind.SESSION:
                    self._queue.add(other)


def _fingerprint(raw: Mapping[str, Any]) -> tuple[Any, ...]:
    """The parts of an object that the operator itself does not change, or whose change concerns other objects."""
    meta, status = raw["metadata"], raw.get("status") or {}
    return (
        meta.get("uid"),
        meta.get("generation"),
        meta.get("deletionTimestamp"),
        meta.get("labels"),
        meta.get("annotations"),
        status.get("capacity"),
    )


async def _work(connection: Connection, context: Context, queue: WorkQueue[Key]) -> None:
    """List and watch everything; reconcile once this replica leads."""
    await _refresh_until_available(context)
    events = _EventHandler(context.cache, queue)
    settings = context.settings
    webhook = None
    if settings.admission.enabled:
        admission = Admission(context.cache, settings, context.metrics.reviewed)
        certificates = settings.admission.certificate_directory
        context.metrics.watch_certificate(certificates / "tls.crt")
        webhook = Webhook(settings.admission.port, certificates, admission.review, settings.admission.client_ca)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(watch(connection, events.handle, settings.health.port, webhook, context.cache.watchable))
            group.create_task(context.profiles.watch())
            if context.objects is not None:
                group.create_task(context.objects.watch())
            group.create_task(context.issuers.watch())
            if context.prerequisites is not None:
                group.create_task(context.prerequisites.watch())
            group.create_task(_lead(context, queue))
    except* LeadershipLostError as lost:
        raise LeadershipLostError(f"{_first(lost)} Another replica leads; this one ends.") from None


async def _lead(context: Context, queue: WorkQueue[Key]) -> None:
    await context.leadership.win()
    async with asyncio.TaskGroup() as group:
        group.create_task(context.leadership.keep())
        group.create_task(_reconcile_everything(context, queue, group))


async def _reconcile_everything(context: Context, queue: WorkQueue[Key], group: asyncio.TaskGroup) -> None:
    # The previous leader may have written objects that no watch has delivered yet.
    await _refresh_until_available(context)
    for key in context.cache.known:
        queue.add(key)
    logger.info("the operator reconciles %d objects", len(context.cache.known))
    group.create_task(queue.run(lambda key: _pass(key, context), WORKERS))
    group.create_task(_remove_leftovers_regularly(context, queue))


def _first(errors: BaseExceptionGroup[LeadershipLostError]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _pass(key: Key, context: Context) -> float | None:
    kind, name = key
    with about(**{"pool" if kind is Kind.POOL else "session": name}):
        return await _process(kind, name, context)


async def _process(kind: Kind, name: str, context: Context) -> float | None:
    try:
        context.metrics.show(context.cache.cluster())
        with context.metrics.reconciling(str(kind)):
            if kind is Kind.SESSION:
                return await process_session(name, context)
            return await process_pool(name, context) if kind is Kind.POOL else None
    except (PassFailedError, ApiServerUnavailableError, LeadershipLostError) as error:
        logger.warning("%s %s: %s The operator tries again.", kind, name, error)
        raise
    except Exception:
        logger.exception("%s %s: the pass failed; the operator tries again", kind, name)
        raise


async def _remove_leftovers_regularly(context: Context, queue: WorkQueue[Key]) -> None:
    while True:
        try:
            await remove_leftovers(context)
        except (ApiServerUnavailableError, EngineUnavailableError, KindMissingError) as error:
            logger.warning("removing leftovers failed: %s", error)
        except Exception:
            logger.exception("removing leftovers failed")
        # Sessions that no watch has reported. Pools have times of their own, since each pass lists their nodes.
        for key in context.cache.known:
            queue.add_after(key, MAX_PATIENCE_SECONDS if key[0] is Kind.POOL else context.settings.resync_seconds)
        await asyncio.sleep(SWEEP_SECONDS)


async def _refresh_until_available(context: Context) -> None:
    logged = ""
    while True:
        try:
            await context.cache.refresh()
            return
        except ApiServerUnavailableError as error:
            waits_for = f"the API server: {error}"
        except KindMissingError as error:
            waits_for = f"the CustomResourceDefinitions: {error}"
        if waits_for != logged:
            logger.warning("waiting for %s", waits_for)
            logged = waits_for
        await asyncio.sleep(RETRY_SECONDS)


async def _end(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
