"""Carries out what a reconciler answers."""

import asyncio
import logging
from typing import Final

from lightkube import ApiError

from partita_api.gpupool import GPUPool
from partita_operator.handlers.surroundings import Surroundings
from partita_operator.kube.writes import Owner
from partita_operator.ports import EngineUnavailableError, PartitionerError
from partita_operator.reconcile.actions import (
    Action,
    AddFinalizer,
    ApplyServing,
    ApprovePlan,
    CancelSolve,
    CreatePlan,
    DeletePlan,
    KeepPlan,
    PartitionNode,
    PublishConfigurations,
    RemoveFinalizer,
    RemoveProfileRun,
    RemoveServing,
    Solve,
    StartProfile,
    StoreProfile,
)
from partita_operator.reconcile.capacity.accounting import available, fits
from partita_operator.reconcile.world import SessionWorld

logger = logging.getLogger(__name__)

ACTION_TIMEOUT_S: Final = 90.0
"""What an action may take: the first one on a Ray cluster starts Serve."""


async def carry_out(actions: tuple[Action, ...], world: SessionWorld, around: Surroundings) -> str:
    """Carry the actions out in order; what they failed with, in sentences. One that fails does not hold up the rest.

    Raises ApiServerUnavailableError: without the API server there is no use in going on; and LeadershipLostError.
    """
    problems: list[str] = []
    for action in actions:
        around.leadership.ensure()
        try:
            await _carry_out(action, world, around)
        except TimeoutError:
            problems.append(f"{_words(action)} took longer than {ACTION_TIMEOUT_S:g} s.")
        except (EngineUnavailableError, ApiError) as error:
            problems.append(f"{_words(action)} failed: {error}.")
    return " ".join(dict.fromkeys(problems))


async def carry_out_of_pool(actions: tuple[Action, ...], pool: GPUPool, around: Surroundings) -> str:
    """Carry a pool's actions out in order; what they failed with, in sentences.

    Its finalizer is left for the next pass if something failed. Raises ApiServerUnavailableError and
    LeadershipLostError.
    """
    problems: list[str] = []
    for action in actions:
        around.leadership.ensure()
        try:
            await _carry_out_of_pool(action, pool, around, problems)
        except PartitionerError as error:
            logger.warning("pool %s: %s", pool.metadata.name, error)
            problems.append(str(error))
    return " ".join(dict.fromkeys(problems))


async def _carry_out_of_pool(action: Action, pool: GPUPool, around: Surroundings, problems: list[str]) -> None:
    match action:
        case PublishConfigurations(configurations) if around.partitioner is not None:
            logger.info(
                "pool %s: %d configurations of MIG slices are published", pool.metadata.name, len(configurations)
            )
            await around.partitioner.publish(configurations)
        case PartitionNode(step) if around.partitioner is not None:
            logger.info(
                "pool %s: node %s: %s (%s)", pool.metadata.name, step.node, step.kind, step.config or step.present
            )
            await around.partitioner.take(step)
        case RemoveFinalizer() if problems:
            return
        case _:
            await change_finalizer(pool, action, around)


async def change_finalizer(owner: Owner, action: Action, around: Surroundings) -> bool:
    """Carry out an action on an object's finalizer; whether `action` is one."""
    match action:
        case AddFinalizer():
            await around.writer.add_finalizer(owner)
        case RemoveFinalizer():
            logger.info("%s %s: nothing of it is left, so it may go", owner.kind, owner.metadata.name)
            await around.writer.remove_finalizer(owner)
        case _:
            return False
    return True


async def _carry_out(action: Action, world: SessionWorld, around: Surroundings) -> None:
    session, key = world.session, world.session.key
    namespace = session.metadata.namespace or "default"
    if await change_finalizer(session, action, around):
        return
    match action:
        case StartProfile(request, pool, attempt):
            logger.info("session %s: profiling on pool %s, attempt %d (%s)", key, request.pool, attempt, request.key)
            async with asyncio.timeout(ACTION_TIMEOUT_S):
                await around.runner.start(namespace, request, pool, attempt)
        case RemoveProfileRun(profile, attempt):
            async with asyncio.timeout(ACTION_TIMEOUT_S):
                await around.runner.remove(namespace, profile, attempt)
        case StoreProfile(profile):
            logger.info("session %s: profile %s of pool %s is there", key, profile.key, profile.request.pool)
            await around.profiles.store(namespace, profile)
        case Solve(question, problem):
            around.searches.start(key, question, problem)
        case CancelSolve():
            around.searches.cancel(key)
        case CreatePlan():
            await _create_plan(action, world, around)
        case KeepPlan(name, annotations):
            logger.info("session %s: plan %s is still the best", key, name)
            await around.writer.annotate_plan(namespace, name, annotations)
        case ApprovePlan(name):
            await around.writer.approve_plan(namespace, name)
        case DeletePlan(name):
            logger.info("session %s: plan %s is deleted", key, name)
            await around.writer.delete_plan(namespace, name)
        case ApplyServing(spec):
            async with asyncio.timeout(ACTION_TIMEOUT_S):
                await around.engines.of(session).apply(spec)
        case RemoveServing():
            async with asyncio.timeout(ACTION_TIMEOUT_S):
                await around.engines.of(session).remove(key)


async def _create_plan(action: CreatePlan, world: SessionWorld, around: Surroundings) -> None:
    key, name = world.session.key, action.plan.metadata.name
    async with around.plan_creation:
        cluster = around.cache.cluster()
        session = cluster.sessions.get(key)
        if session is None or not fits(action.plan, available(session, cluster, taking=True)):
            logger.info("session %s: plan %s came too late for its accelerators", key, name)
            return
        logger.info("session %s: plan %s is made", key, name)
        await around.writer.create_plan(action.plan, world.session)


def _words(action: Action) -> str:
    """What an action is about, for people."""
    match action:
        case StartProfile(request):
            return f"Starting a profiling run on pool {request.pool}"
        case ApplyServing():
            return "Applying the plan to the serving engine"
        case RemoveServing():
            return "Removing the applications from the serving engine"
        case _:
            return f"{type(action).__name__}"
