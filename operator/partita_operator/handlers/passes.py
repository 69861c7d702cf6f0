"""One pass over a session or a pool: observe, reconcile, write the status, publish events, execute the actions."""

import contextlib
import logging
from dataclasses import replace
from datetime import UTC, datetime

from partita_api.inferencesession import InferenceSession, InferenceSessionStatus
from partita_operator.handlers.actions import execute, execute_for_pool
from partita_operator.handlers.context import Context
from partita_operator.handlers.observation import observe_pool, observe_session
from partita_operator.kube.errors import ApiError
from partita_operator.kube.events import publish
from partita_operator.kube.retries import ApiServerUnavailableError
from partita_operator.kube.writes import Owner
from partita_operator.ports import EngineUnavailableError
from partita_operator.reconcile.actions import Decision, Event
from partita_operator.reconcile.pool.reconciler import reconcile_pool
from partita_operator.reconcile.session.reconciler import reconcile_session
from partita_operator.reconcile.world import SessionWorld

logger = logging.getLogger(__name__)


class PassFailedError(Exception):
    """Actions of a pass failed; the message says which and why."""


async def process_session(key: str, context: Context) -> float | None:
    """Reconcile the session once. Returns the seconds until the next pass; None if the session does not exist.

    Raises PassFailedError, ApiServerUnavailableError and LeadershipLostError.
    """
    cluster = context.cache.cluster()
    session = cluster.sessions.get(key)
    if session is None:
        context.forget(key)
        return None
    world = await observe_session(session, cluster, context)
    context.leadership.ensure()  # the observation may have taken a while
    now = datetime.now(UTC)
    async with contextlib.AsyncExitStack() as lock:
        if session.status.scale_to_zero_time is not None and world.signals is not None and world.signals.held:
            await lock.enter_async_context(context.plan_creation)
            world = replace(world, cluster=context.cache.cluster())
        decision = reconcile_session(world, now)
        await _write_statuses(decision, world, context)
    await _publish_events(session, decision.events, now, context)
    memory = context.memory(key)
    memory.exposure_problem = ""
    memory.problem = await execute(decision.actions, world, context)
    if memory.problem:
        raise PassFailedError(memory.problem)
    return decision.requeue_after


async def _write_statuses(decision: Decision[InferenceSessionStatus], world: SessionWorld, context: Context) -> None:
    for name, status in decision.plan_statuses.items():
        if status != world.plans[name].status:
            await context.writer.write_status(world.plans[name], status)
    if decision.status != world.session.status:
        await context.writer.write_status(world.session, decision.status)


async def process_pool(name: str, context: Context) -> float | None:
    """Reconcile the pool once. Returns the seconds until the next pass; None if the pool does not exist.

    Raises ApiServerUnavailableError and LeadershipLostError.
    """
    cluster = context.cache.cluster()
    pool = cluster.pools.get(name)
    if pool is None:
        context.pool_problems.pop(name, None)
        return None
    world = await observe_pool(pool, cluster, context)
    context.leadership.ensure()
    now = datetime.now(UTC)
    decision = reconcile_pool(world, now)
    if decision.status != pool.status:
        await context.writer.write_status(pool, decision.status)
    await _publish_events(pool, decision.events, now, context)
    context.pool_problems[name] = await execute_for_pool(decision.actions, pool, context)
    return decision.requeue_after


async def remove_leftovers(context: Context) -> None:
    """List all objects, and remove applications of sessions that were deleted or moved to another engine.

    Applications of namespaces that this operator does not manage, or may not list now, stay. Raises
    ApiServerUnavailableError, because objects that cannot be listed must not count as deleted. Raises
    EngineUnavailableError after the other engines.
    """
    await context.cache.refresh()
    sessions, namespaces = context.cache.cluster().sessions, context.settings.namespaces
    problems = []
    for engine in context.engines.known():
        try:
            for key in sorted(await engine.sessions()):
                session = sessions.get(key)
                namespace = key.partition("/")[0]
                if (namespaces and namespace not in namespaces) or namespace in context.cache.refused:
                    continue
                if session is None or await context.engines.has_left(session, engine):
                    context.leadership.ensure()
                    logger.info("session %s: removing its applications from its earlier engine", key)
                    await engine.remove(key)
        except EngineUnavailableError as error:
            problems.append(str(error))
    if problems:
        raise EngineUnavailableError(" ".join(problems))


async def _publish_events(owner: Owner, events: tuple[Event, ...], now: datetime, context: Context) -> None:
    """Log and publish events. The pass does not fail if one cannot be published."""
    name = owner.key if isinstance(owner, InferenceSession) else owner.metadata.name
    for event in events:
        logger.info("%s %s: %s: %s", owner.kind, name, event.reason, event.message)
        try:
            await publish(context.client, owner, event, now)
        except (ApiError, ApiServerUnavailableError) as error:
            logger.warning("%s %s: the event %s was not published: %s", owner.kind, name, event.reason, error)
