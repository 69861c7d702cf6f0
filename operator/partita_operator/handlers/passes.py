"""One pass over a session or a pool: look, decide, write the status, tell, act."""

import contextlib
import logging
from dataclasses import replace
from datetime import UTC, datetime

from lightkube import ApiError

from partita_api.inferencesession import InferenceSession, InferenceSessionStatus
from partita_operator.handlers.actions import carry_out, carry_out_of_pool
from partita_operator.handlers.observation import observe_pool, observe_session
from partita_operator.handlers.surroundings import Surroundings
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
    """Some of a pass's actions failed; the message says which and why."""


async def pass_session(key: str, around: Surroundings) -> float | None:
    """Look at the session once; the seconds after which to look again, None if it is gone.

    Raises PassFailedError, ApiServerUnavailableError and LeadershipLostError.
    """
    cluster = around.cache.cluster()
    session = cluster.sessions.get(key)
    if session is None:
        around.forget(key)
        return None
    world = await observe_session(session, cluster, around)
    around.leadership.ensure()  # looking may have taken a while
    now = datetime.now(UTC)
    async with contextlib.AsyncExitStack() as deciding:
        if session.status.asleep_since is not None and world.signals is not None and world.signals.held:
            await deciding.enter_async_context(around.plan_creation)
            world = replace(world, cluster=around.cache.cluster())
        decision = reconcile_session(world, now)
        await _write_statuses(decision, world, around)
    await _tell(session, decision.events, now, around)
    memory = around.memory(key)
    memory.problem = await carry_out(decision.actions, world, around)
    if memory.problem:
        raise PassFailedError(memory.problem)
    return decision.requeue_after


async def _write_statuses(
    decision: Decision[InferenceSessionStatus], world: SessionWorld, around: Surroundings
) -> None:
    for name, status in decision.plan_statuses.items():
        if status != world.plans[name].status:
            await around.writer.write_status(world.plans[name], status)
    if decision.status != world.session.status:
        await around.writer.write_status(world.session, decision.status)


async def pass_pool(name: str, around: Surroundings) -> float | None:
    """Look at the pool once; the seconds after which to look again, None if it is gone.

    Raises ApiServerUnavailableError and LeadershipLostError.
    """
    cluster = around.cache.cluster()
    pool = cluster.pools.get(name)
    if pool is None:
        around.pool_problems.pop(name, None)
        return None
    world = await observe_pool(pool, cluster, around)
    around.leadership.ensure()
    now = datetime.now(UTC)
    decision = reconcile_pool(world, now)
    if decision.status != pool.status:
        await around.writer.write_status(pool, decision.status)
    await _tell(pool, decision.events, now, around)
    around.pool_problems[name] = await carry_out_of_pool(decision.actions, pool, around)
    return decision.requeue_after


async def sweep(around: Surroundings) -> None:
    """List everything anew, and take down applications of sessions that are gone or have moved to another engine.

    Applications of namespaces that this operator does not look after are left alone.
    Raises ApiServerUnavailableError: what cannot be listed must not count as gone. Raises EngineUnavailableError
    after all engines that can be reached have been looked at.
    """
    await around.cache.refresh()
    sessions, namespaces = around.cache.cluster().sessions, around.settings.namespaces
    problems = []
    for engine in around.engines.known():
        try:
            for key in sorted(await engine.sessions()):
                session = sessions.get(key)
                if namespaces and key.partition("/")[0] not in namespaces:
                    continue
                if session is None or around.engines.of(session) is not engine:
                    around.leadership.ensure()
                    logger.info("session %s: it is not served here any more; its applications are removed", key)
                    await engine.remove(key)
        except EngineUnavailableError as error:
            problems.append(str(error))
    if problems:
        raise EngineUnavailableError(" ".join(problems))


async def _tell(owner: Owner, events: tuple[Event, ...], now: datetime, around: Surroundings) -> None:
    """Log and publish events. One that cannot be published is not worth a failed pass."""
    name = owner.key if isinstance(owner, InferenceSession) else owner.metadata.name
    for event in events:
        logger.info("%s %s: %s: %s", owner.kind, name, event.reason, event.message)
        try:
            await publish(around.client, owner, event, now)
        except (ApiError, ApiServerUnavailableError) as error:
            logger.warning("%s %s: the event %s was not published: %s", owner.kind, name, event.reason, error)
