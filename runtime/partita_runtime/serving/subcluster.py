"""The Serve deployment of a sub-cluster: each replica is a vGPU with several models, which change with plans."""

import asyncio
import logging
from typing import Any

import ray
from ray import serve

from partita_runtime.logs import log_as_environment_says
from partita_runtime.serving.deploy.directory import ANNOUNCE_SECONDS, Directory
from partita_runtime.serving.deploy.names import SUBCLUSTER
from partita_runtime.serving.deploy.stage_arguments import SubclusterArguments, SubclusterModels
from partita_runtime.serving.replica.loaded_models import LoadedModels
from partita_runtime.serving.transport.actor_calls import RayTransport

logger = logging.getLogger(__name__)


class SubclusterReplica:
    """One vGPU. Serve counts it as ready once its first models are loaded and warmed up."""

    def __init__(self, arguments: SubclusterArguments) -> None:
        replica = serve.get_replica_context().replica_id.unique_id
        log_as_environment_says(session=arguments.session_key, replica=replica)
        node = ray.get_runtime_context().get_node_id()
        transport = RayTransport(arguments.transport, arguments.tls)
        self._models = LoadedModels(replica, node, ray.util.get_node_ip_address(), transport=transport)
        self._directory = Directory()
        self._announcing: asyncio.Task[None] | None = None
        self._known: set[str] = set()
        """Ids that were announced."""

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Load other models. Serve calls this before the replica is ready, and whenever its models change."""
        if self._announcing is None:
            self._announcing = asyncio.create_task(self._announce())
        desired = SubclusterModels.model_validate(user_config)
        await self._models.load(desired.stages, desired.memory_bytes)

    async def check_health(self) -> None:
        """Raises if no more batches will be run; Serve then replaces the replica."""
        self._models.check_health()

    async def __del__(self) -> None:
        """Serve awaits this before it ends the process, for up to the deployment's graceful_shutdown_timeout_s."""
        if self._announcing is not None:
            self._announcing.cancel()
        try:
            await self._withdraw(self._known)
        except LookupError:
            logger.info("the directory is away; it removes this replica after a few seconds")
        await self._models.close()

    async def _announce(self) -> None:
        while True:
            announcements = self._models.announcements
            try:
                await self._withdraw(self._known - {a.replica for a in announcements})
                for announcement in announcements:
                    self._known.add(announcement.replica)
                    await self._directory.announce(announcement)
            except LookupError as error:
                logger.warning("the replica cannot be announced: %s", error)
            await asyncio.sleep(ANNOUNCE_SECONDS)

    async def _withdraw(self, replicas: set[str]) -> None:
        for replica in sorted(replicas):
            await self._directory.withdraw(replica)
            self._known.discard(replica)


def application(args: dict[str, Any]) -> serve.Application:
    """Built by Serve from the `args` of the declarative configuration."""
    deployment = serve.deployment(name=SUBCLUSTER)(SubclusterReplica)
    return deployment.bind(SubclusterArguments.model_validate(args))
