"""Executes the actions that a reconciler decided."""

import asyncio
import logging
from typing import Final

from partita_api.gpupool import GPUPool
from partita_operator.handlers.context import Context
from partita_operator.kube.errors import ApiError, NameTakenError
from partita_operator.kube.writes import Owner
from partita_operator.ports import EngineUnavailableError, PartitionerError
from partita_operator.reconcile.actions import (
    Action,
    AddFinalizer,
    ApplyObject,
    ApplyServing,
    ApprovePlan,
    CancelSolve,
    CheckQuality,
    CreatePlan,
    DeleteObject,
    DeletePlan,
    ForgetProfile,
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
from partita_operator.reconcile.object_changes import object_name
from partita_operator.reconcile.world import SessionWorld

logger = logging.getLogger(__name__)

ACTION_TIMEOUT_S: Final = 90.0
"""Time limit of an action; the first one on a Ray cluster starts Serve."""


async def execute(actions: tuple[Action, ...], world: SessionWorld, context: Context) -> str:
    """Execute the actions in order, and return the errors as sentences. After an error the next action follows.

    Raises ApiServerUnavailableError and LeadershipLostError, which end the pass.
    """
    problems: list[str] = []
    for action in actions:
        context.leadership.ensure()
        try:
            await _execute(action, world, context)
        except TimeoutError:
            problems.append(f"{_label(action)} took longer than {ACTION_TIMEOUT_S:g} s.")
        except (EngineUnavailableError, ApiError) as error:
            problems.append(f"{_label(action)} failed: {str(error).removesuffix('.')}.")
    return " ".join(dict.fromkeys(problems))


async def execute_for_pool(actions: tuple[Action, ...], pool: GPUPool, context: Context) -> str:
    """Execute a pool's actions in order, and return the errors as sentences.

    After an error the pool keeps its finalizer until the next pass. Raises ApiServerUnavailableError and
    LeadershipLostError.
    """
    problems: list[str] = []
    for action in actions:
        context.leadership.ensure()
        try:
            await _execute_for_pool(action, pool, context, problems)
        except PartitionerError as error:
            logger.warning("pool %s: %s", pool.metadata.name, error)
            problems.append(str(error))
    return " ".join(dict.fromkeys(problems))


async def _execute_for_pool(action: Action, pool: GPUPool, context: Context, problems: list[str]) -> None:
    match action:
        case PublishConfigurations(configurations) if context.partitioner is not None:
            logger.info("pool %s: publishing %d configurations of MIG slices", pool.metadata.name, len(configurations))
            await context.partitioner.publish(configurations)
        case PartitionNode(step) if context.partitioner is not None:
            logger.info(
                "pool %s: node %s: %s (%s)", pool.metadata.name, step.node, step.kind, step.config or step.present
            )
            await context.partitioner.take(step)
        case RemoveFinalizer() if problems:
            return
        case _:
            await change_finalizer(pool, action, context)


async def change_finalizer(owner: Owner, action: Action, context: Context) -> bool:
    """Execute an action on an object's finalizer; False if `action` is another one."""
    match action:
        case AddFinalizer():
            await context.writer.add_finalizer(owner)
        case RemoveFinalizer():
            logger.info("%s %s: everything is removed; removing the finalizer", owner.kind, owner.metadata.name)
            await context.writer.remove_finalizer(owner)
        case _:
            return False
    return True


async def _execute(action: Action, world: SessionWorld, context: Context) -> None:
    session, key = world.session, world.session.key
    namespace = session.namespace
    if await change_finalizer(session, action, context):
        return
    match action:
        case StartProfile(request, pool, attempt):
            logger.info("session %s: profiling on pool %s, attempt %d (%s)", key, request.pool, attempt, request.key)
            async with asyncio.timeout(ACTION_TIMEOUT_S):
                await context.runner.start(namespace, request, pool, attempt)
        case RemoveProfileRun(profile, attempt):
            async with asyncio.timeout(ACTION_TIMEOUT_S):
                await context.runner.remove(namespace, profile, attempt)
        case StoreProfile(profile):
            logger.info("session %s: storing profile %s of pool %s", key, profile.key, profile.request.pool)
            await context.profiles.store(namespace, profile)
        case ForgetProfile(profile):
            logger.info("session %s: the content of a model has changed; forgetting profile %s", key, profile)
            await context.profiles.forget(namespace, profile)
        case Solve(question, problem):
            context.searches.start(key, question, problem)
        case CancelSolve():
            context.searches.cancel(key)
        case CreatePlan():
            await _create_plan(action, world, context)
        case KeepPlan(name, annotations):
            logger.info("session %s: plan %s is still the best", key, name)
            await context.writer.annotate_plan(namespace, name, annotations)
        case ApprovePlan(name):
            await context.writer.approve_plan(namespace, name)
        case DeletePlan(name):
            logger.info("session %s: deleting plan %s", key, name)
            await context.writer.delete_plan(namespace, name)
        case ApplyObject() | DeleteObject():
            await _change_object(action, world, context)
        case ApplyServing(spec):
            async with asyncio.timeout(ACTION_TIMEOUT_S):
                await context.engines.of(session).apply(spec)
        case CheckQuality():
            context.checks.start(key, action, context.engines.of(session))
        case RemoveServing():
            async with asyncio.timeout(ACTION_TIMEOUT_S):
                await context.engines.of(session).remove(key)


async def _change_object(action: ApplyObject | DeleteObject, world: SessionWorld, context: Context) -> None:
    """Write or delete an object of the session. What fails is reported by the condition Exposed alone."""
    assert context.objects is not None
    kind, name = object_name(action.manifest) if isinstance(action, ApplyObject) else (action.kind, action.name)
    logger.info("session %s: %s %s %s", world.session.key, type(action).__name__, kind, name)
    problem = ""
    try:
        match action:
            case ApplyObject(manifest):
                await context.objects.apply(manifest)
            case DeleteObject():
                await context.objects.delete(action, world.session.namespace)
    except NameTakenError as error:
        problem = str(error)
    except ApiError as error:
        problem = f"The API server refuses {kind} {name}: {str(error).removesuffix('.')}."
    if problem:
        logger.warning("session %s: %s", world.session.key, problem)
        context.memory(world.session.key).exposure_problem = problem


async def _create_plan(action: CreatePlan, world: SessionWorld, context: Context) -> None:
    key, name = world.session.key, action.plan.metadata.name
    async with context.plan_creation:
        cluster = context.cache.cluster()
        session = cluster.sessions.get(key)
        if session is None or not fits(action.plan, available(session, cluster, taking=True)):
            logger.info("session %s: plan %s is dropped, because its accelerators are in use now", key, name)
            return
        logger.info("session %s: creating plan %s", key, name)
        await context.writer.create_plan(action.plan, world.session)


def _label(action: Action) -> str:
    """The action, as the subject of a sentence."""
    match action:
        case StartProfile(request):
            return f"Starting a profiling run on pool {request.pool}"
        case ApplyServing():
            return "Applying the plan to the serving engine"
        case RemoveServing():
            return "Removing the applications from the serving engine"
        case _:
            return f"{type(action).__name__}"
