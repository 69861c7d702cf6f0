"""The Serve deployment of a stage: a process with a worker in it, announced in the directory."""

import asyncio
import logging
from typing import Any

import ray
from ray import serve

from partita_runtime.execution.build import build_executor
from partita_runtime.execution.executor import BuiltExecutor
from partita_runtime.execution.stage_build import StageBuild
from partita_runtime.logs import log_as_environment_says
from partita_runtime.serving.directory import ANNOUNCE_SECONDS, Announcement, Directory
from partita_runtime.serving.names import STAGE
from partita_runtime.serving.stage_arguments import StageArguments
from partita_runtime.serving.worker import StageWorker

logger = logging.getLogger(__name__)


class StageReplica:
    """One vGPU with one stage's blocks. Serve counts it as ready once they are loaded and warmed up."""

    async def __init__(self, arguments: StageArguments) -> None:  # type: ignore[misc]  # Serve awaits it
        log_as_environment_says(
            session=arguments.session_key,
            plan=arguments.plan,
            module=arguments.module,
            pipeline=arguments.pipeline,
            stage=arguments.stage,
            pool=arguments.pool,
            replica=serve.get_replica_context().replica_id.unique_id,
        )
        built = await asyncio.to_thread(_warm, arguments.build)
        for warning in built.warnings:
            logger.warning("%s", warning)
        self._worker = StageWorker(built, arguments.build.max_batch)
        hop = await self._worker.start(ray.util.get_node_ip_address())
        context = ray.get_runtime_context()
        self._announcement = Announcement(
            replica=serve.get_replica_context().replica_id.unique_id,
            session_key=arguments.session_key,
            plan=arguments.plan,
            module=arguments.module,
            pipeline=arguments.pipeline,
            stage=arguments.stage,
            node=context.get_node_id(),
            hop=hop,
            profile=arguments.profile,
            partition=built.partition,
            warnings=built.warnings,
        )
        self._directory = Directory()
        self._announcing = asyncio.create_task(self._announce())

    async def check_health(self) -> None:
        """Raises if no more batches will be run; Serve then replaces the replica."""
        self._worker.check_health()

    async def __del__(self) -> None:
        """Serve awaits this before it ends the process, for up to the deployment's graceful_shutdown_timeout_s."""
        self._announcing.cancel()
        try:
            await self._directory.withdraw(self._announcement.replica)
        except LookupError:
            logger.info("the directory is away; it will forget this replica by itself")
        await self._worker.drain()
        await self._worker.stop()

    async def _announce(self) -> None:
        while True:
            try:
                await self._directory.announce(self._announcement)
            except LookupError as error:
                logger.warning("cannot be announced now: %s", error)
            await asyncio.sleep(ANNOUNCE_SECONDS)


def application(args: dict[str, Any]) -> serve.Application:
    """Built by Serve from the `args` of the declarative configuration."""
    deployment = serve.deployment(name=STAGE)(StageReplica)
    return deployment.bind(StageArguments.model_validate(args))


def _warm(build: StageBuild) -> BuiltExecutor:
    built = build_executor(build)
    built.executor.warm_up(range(1, build.max_batch + 1))
    return built
