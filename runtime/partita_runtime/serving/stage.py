"""The Serve deployment of a stage: a process with a worker in it, announced in the directory."""

import asyncio
import logging
import time
from typing import Any

import ray
from ray import serve

from partita_runtime.execution.build import warmed
from partita_runtime.logs import log_as_environment_says
from partita_runtime.serving.deploy.directory import ANNOUNCE_SECONDS, Announcement, Directory
from partita_runtime.serving.deploy.names import STAGE
from partita_runtime.serving.deploy.relocation import STAND_IN_SECONDS, Relocation
from partita_runtime.serving.deploy.stage_arguments import StageArguments
from partita_runtime.serving.replica.worker import StageWorker
from partita_runtime.serving.transport.actor_calls import RayTransport

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
        built = await asyncio.to_thread(warmed, arguments.build)
        for warning in built.warnings:
            logger.warning("%s", warning)
        transport = RayTransport(arguments.transport, arguments.tls)
        self._worker = StageWorker(built, arguments.build.max_batch, transport=transport)
        address = await self._worker.start(ray.util.get_node_ip_address())
        context = ray.get_runtime_context()
        self._announcement = Announcement(
            replica=serve.get_replica_context().replica_id.unique_id,
            session_key=arguments.session_key,
            plan=arguments.plan,
            module=arguments.module,
            pipeline=arguments.pipeline,
            stage=arguments.stage,
            node=context.get_node_id(),
            address=address,
            profile=arguments.profile,
            partition=built.partition,
            warnings=built.warnings,
            any_size=built.any_size,
            can_make_place=True,
        )
        self._directory = Directory()
        self._announcing = asyncio.create_task(self._announce())
        self._leaving: Relocation | None = None

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Serve calls this when one of the stage's replicas has to move to another node."""
        relocation = Relocation.model_validate(user_config)
        self._leaving = relocation if relocation.replica == self._announcement.replica else None

    async def check_health(self) -> None:
        """Raises if no more batches will be run, or if the replica has to move; Serve then replaces it."""
        self._worker.check_health()
        if self._leaving is not None:
            raise RuntimeError("not a failure: another replica takes its place, on a node with fewer replicas")

    async def __del__(self) -> None:
        """Serve awaits this before it ends the process, for up to the deployment's graceful_shutdown_timeout_s."""
        if self._leaving is not None:
            await self._wait_for_replacement(self._leaving.others)
        self._announcing.cancel()
        try:
            await self._directory.withdraw(self._announcement.replica)
        except LookupError:
            logger.info("the directory is away; it removes this replica after a few seconds")
        await self._worker.drain()
        await self._worker.stop()

    async def _wait_for_replacement(self, others: int) -> None:
        """Serve until so many other replicas of the stage do, or no frontend is connected."""
        own = self._announcement
        patience = time.monotonic() + STAND_IN_SECONDS
        while self._worker.is_used and time.monotonic() < patience:
            try:
                there = await self._directory.replicas(own.session_key)
            except LookupError:
                there = []
            if sum(a.plan == own.plan and a.ref == own.ref and a.replica != own.replica for a in there) >= others:
                await asyncio.sleep(2 * ANNOUNCE_SECONDS)  # the frontends have them in use by then
                return
            await asyncio.sleep(ANNOUNCE_SECONDS)
        logger.warning("this replica ends, although no other replica of the stage has taken its place")

    async def _announce(self) -> None:
        while True:
            try:
                await self._directory.announce(self._announcement)
            except LookupError as error:
                logger.warning("the replica cannot be announced: %s", error)
            await asyncio.sleep(ANNOUNCE_SECONDS)


def application(args: dict[str, Any]) -> serve.Application:
    """Built by Serve from the `args` of the declarative configuration."""
    deployment = serve.deployment(name=STAGE)(StageReplica)
    return deployment.bind(StageArguments.model_validate(args))
