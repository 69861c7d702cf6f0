"""A standby process for the frontend that replaces one that dies.

Starting a frontend takes most of its time for loading Python, Ray and Serve. Ray starts a new actor in an idle process
of its node, if there is one with the same runtime environment that has run nothing yet. So a frontend requests such a
process, and the next frontend starts in it.
"""

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import ray

FIRST_SECONDS: Final = 0.5
"""When a frontend first checks for one; before, it answers the requests that have waited for it."""
CHECK_SECONDS: Final = 5.0
"""How often it checks after that: another new replica on this node may have taken the process."""
STAY_SECONDS: Final = 3600
"""How long Ray keeps it. Later Ray may end it if the node has more processes than CPUs."""
ANSWER_SECONDS: Final = 10.0
IDLE: Final = b"ray::IDLE"
"""Ray's name of a process that has run nothing."""
STARTING: Final = b"default_worker.py"
"""Part of the command of a process that still loads and has no name yet."""

logger = logging.getLogger(__name__)


class StandbyProcess:
    """Keeps one standby process on this node, for all frontends of the node."""

    def __init__(self) -> None:
        self._keeping: asyncio.Task[None] | None = None

    def keep(self) -> None:
        """Keep one in the background, until `release`."""
        if self._keeping is None:
            self._keeping = asyncio.get_running_loop().create_task(_keep())

    def release(self) -> None:
        """Stop checking. A process that exists stays for the next frontend."""
        if self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None


async def _keep() -> None:
    try:
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            if not await asyncio.to_thread(_exists):
                await asyncio.to_thread(_request)
            await asyncio.sleep(CHECK_SECONDS)
    except Exception as error:
        # The request is part of Ray's internal protocol; nothing else depends on it.
        logger.warning("no standby process; if this frontend dies, the next one takes longer to start: %s", error)


def _exists() -> bool:
    """Whether the node's raylet, the parent of all its processes, has one that is idle, or still loads."""
    node = os.getppid()
    for child in Path(f"/proc/{node}/task/{node}/children").read_text().split():
        with suppress(OSError):  # the process may have ended
            command = Path(f"/proc/{child}/cmdline").read_bytes()
            if command.startswith(IDLE) or STARTING in command:
                return True
    return False


def _request() -> None:
    """Request a process of Ray. Raises RpcError, or another error if Ray's internals have changed."""
    # Imported here: these are internals of Ray, and a version without them must not stop frontends from starting.
    from ray._private.grpc_utils import init_grpc_channel
    from ray.core.generated.common_pb2 import Language
    from ray.core.generated.node_manager_pb2 import PrestartWorkersRequest
    from ray.core.generated.node_manager_pb2_grpc import NodeManagerServiceStub

    here = ray.get_runtime_context()
    (node,) = (node for node in ray.nodes() if node["NodeID"] == here.get_node_id())
    request = PrestartWorkersRequest(
        language=Language.PYTHON,
        job_id=bytes.fromhex(here.get_job_id()),
        num_workers=1,
        keep_alive_duration_secs=STAY_SECONDS,
    )
    request.runtime_env_info.serialized_runtime_env = here.get_runtime_env_string()
    with init_grpc_channel(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}") as channel:
        NodeManagerServiceStub(channel).PrestartWorkers(request, timeout=ANSWER_SECONDS)
