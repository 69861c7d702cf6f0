"""The operator: watches, queue, workers, metrics and health, put together and run until it is told to stop."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lightkube.config.kubeconfig import SingleConfig

from partita_operator.handlers.admission import Admission
from partita_operator.handlers.leadership import Leadership, LeadershipLostError
from partita_operator.handlers.metrics import Metrics
from partita_operator.handlers.passes import PassFailedError, pass_pool, pass_session, sweep
from partita_operator.handlers.plan_searches import Searches
from partita_operator.handlers.surroundings import Surroundings
from partita_operator.handlers.watches import Webhook, watch
from partita_operator.handlers.workqueue import WorkQueue
from partita_operator.kube.cache import ClusterCache, Key, Kind, KindMissingError, key_of
from partita_operator.kube.connection import client, load_config
from partita_operator.kube.lease import LeaseStore
from partita_operator.kube.profiles import ProfileStore
from partita_operator.kube.retries import ApiServerUnavailableError
from partita_operator.kube.writes import ObjectWriter
from partita_operator.partitioning.mig_manager import MigManager
from partita_operator.ports import EngineUnavailableError, OperatorSettings, PlanSolver, ProfileRunner, ServingEngines
from partita_runtime.logs import about

logger = logging.getLogger(__name__)

WORKERS: Final = 8
SWEEP_SECONDS: Final = 30.0
LOOK_AGAIN_SECONDS: Final = 1.0
"""How soon to look again for an API server or for kinds that are not there at the start."""


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

    `kubeconfig` None means the pod's service account, else $KUBECONFIG or ~/.kube/config. An API server, kinds
    and an engine that are not there yet are waited for. With a Lease, only the replica that holds it works; one that
    waits for it watches, too. Raises NoClusterError if there is no usable configuration, and LeadershipLostError.
    """
    config = load_config(kubeconfig)
    metrics = Metrics()
    queue: WorkQueue[Key] = WorkQueue()
    metrics.watch_queue(lambda: len(queue))
    searches = Searches(solver, metrics, on_answer=lambda session: queue.add((Kind.SESSION, session)))
    async with client(config) as kubernetes:
        cache = ClusterCache(kubernetes, settings.namespaces)
        lease = LeaseStore(kubernetes, *settings.lease.split("/")) if settings.lease else None
        leadership = Leadership(lease, settings.lease_seconds)
        metrics.watch_leadership(lambda: leadership.leads)
        around = Surroundings(
            settings=settings,
            client=kubernetes,
            cache=cache,
            writer=ObjectWriter(kubernetes, cache),
            profiles=ProfileStore(kubernetes, settings.namespaces),
            engines=engines,
            runner=runner,
            searches=searches,
            metrics=metrics,
            leadership=leadership,
            partitioner=MigManager(kubernetes, settings.mig) if settings.mig is not None else None,
        )
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(_work(config, around, queue), name="work"),
            asyncio.create_task(stop.wait(), name="stop"),
        ]
        with metrics.served(settings.metrics_port):
            try:
                ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    task.result()  # raises what the task ended with
            finally:
                await _end(tasks)
                await searches.close()
                await leadership.release()


class _Doorbell:
    """Takes watch events in, and adds to the queue what they concern.

    The operator's own writes come back as events too; only what others change is worth a look.
    """

    def __init__(self, cache: ClusterCache, queue: WorkQueue[Key]) -> None:
        self._cache = cache
        self._queue = queue
        self._seen: dict[Key, Any] = {}

    def ring(self, kind: Kind, type: str | None, raw: dict[str, Any]) -> None:
        """An object was listed, added, modified or deleted."""
        key = key_of(kind, raw)
        if type == "DELETED":
            self._cache.forget(key)
            self._seen.pop(key, None)
        else:
            self._cache.put(kind, raw)
            marks = _marks(raw)
            if self._seen.get(key) == marks:
                return
            self._seen[key] = marks
        if kind is Kind.PLAN:
            session = raw.get("spec", {}).get("session", {}).get("name")
            self._queue.add((Kind.SESSION, f"{raw['metadata']['namespace']}/{session}"))
            return
        self._queue.add(key)
        if kind is Kind.POOL:
            for other in self._cache.known:
                if other[0] is Kind.SESSION:
                    self._queue.add(other)


def _marks(raw: Mapping[str, Any]) -> tuple[Any, ...]:
    """The parts of an object whose change matters to others than its writer."""
    meta, status = raw["metadata"], raw.get("status") or {}
    return (
        meta.get("uid"),
        meta.get("generation"),
        meta.get("deletionTimestamp"),
        meta.get("labels"),
        meta.get("annotations"),
        status.get("capacity"),
    )


async def _work(config: SingleConfig, around: Surroundings, queue: WorkQueue[Key]) -> None:
    """List everything, go on with what the watches bring, and look at everything once this replica leads."""
    await _refresh_patiently(around)
    doorbell = _Doorbell(around.cache, queue)
    settings = around.settings
    webhook = None
    if settings.webhook_certificates is not None:
        admission = Admission(around.cache, settings.model_policy)
        webhook = Webhook(settings.webhook_port, settings.webhook_certificates, admission.judge)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(watch(config, doorbell.ring, settings.health_port, webhook, settings.namespaces))
            group.create_task(around.profiles.watch())
            group.create_task(_lead(around, queue))
    except* LeadershipLostError as lost:
        raise LeadershipLostError(f"{_first(lost)} Another replica leads; this one ends.") from None


async def _lead(around: Surroundings, queue: WorkQueue[Key]) -> None:
    await around.leadership.win()
    async with asyncio.TaskGroup() as group:
        group.create_task(around.leadership.keep())
        group.create_task(_look_after_everything(around, queue, group))


async def _look_after_everything(around: Surroundings, queue: WorkQueue[Key], group: asyncio.TaskGroup) -> None:
    # Whoever led before may have written what no watch has brought yet.
    await _refresh_patiently(around)
    for key in around.cache.known:
        queue.add(key)
    logger.info("the operator looks after %d objects", len(around.cache.known))
    group.create_task(queue.run(lambda key: _pass(key, around), WORKERS))
    group.create_task(_sweep_now_and_then(around, queue))


def _first(errors: BaseExceptionGroup[LeadershipLostError]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _pass(key: Key, around: Surroundings) -> float | None:
    kind, name = key
    with about(**{"pool" if kind is Kind.POOL else "session": name}):
        return await _pass_on(kind, name, around)


async def _pass_on(kind: Kind, name: str, around: Surroundings) -> float | None:
    around.metrics.show(around.cache.cluster())
    try:
        with around.metrics.reconciling(str(kind)):
            if kind is Kind.SESSION:
                return await pass_session(name, around)
            return await pass_pool(name, around) if kind is Kind.POOL else None
    except (PassFailedError, ApiServerUnavailableError, LeadershipLostError) as error:
        logger.warning("%s %s: %s It is tried again.", kind, name, error)
        raise
    except Exception:
        logger.exception("%s %s: the pass failed; it is tried again", kind, name)
        raise


async def _sweep_now_and_then(around: Surroundings, queue: WorkQueue[Key]) -> None:
    while True:
        try:
            await sweep(around)
        except (ApiServerUnavailableError, EngineUnavailableError, KindMissingError) as error:
            logger.warning("looking for leftovers failed: %s", error)
        except Exception:
            logger.exception("looking for leftovers failed")
        for key in around.cache.known:
            queue.add_after(key, around.settings.resync_seconds)
        await asyncio.sleep(SWEEP_SECONDS)


async def _refresh_patiently(around: Surroundings) -> None:
    said = ""
    while True:
        try:
            await around.cache.refresh()
            return
        except ApiServerUnavailableError as error:
            waits_for = f"the API server: {error}"
        except KindMissingError as error:
            waits_for = f"the CustomResourceDefinitions: {error}"
        if waits_for != said:
            logger.warning("waiting for %s", waits_for)
            said = waits_for
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


async def _end(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
