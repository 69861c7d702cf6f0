"""A process in readiness for the frontend that takes the place of one that dies.

Most of the time that a session is without its only frontend goes into the next one's process: Python, Ray and Serve
have to be loaded before anything of ours is. Ray gives a new actor an idle process of its node, if there is one
that has the same runtime environment and has done nothing yet; so a frontend asks for one, and the frontend after
it finds it.
"""

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import ray

FIRST_SECONDS: Final = 0.5
"""When a frontend looks for it first: until then it has to answer those who have waited for it."""
LOOK_SECONDS: Final = 5.0
"""How often it looks after that: any other new replica on this node may be in it by then."""
STAY_SECONDS: Final = 3600
"""How long Ray leaves it alone; after that it may end it, where it has more processes than CPUs."""
ANSWER_SECONDS: Final = 10.0
IDLE: Final = b"ray::IDLE"
"""What Ray names a process that has nothing to do."""
STARTING: Final = b"default_worker.py"
"""In the command of one that still loads, and has no name yet."""

logger = logging.getLogger(__name__)


class Spare:
    """Sees to it that there is such a process on this node, in the background: one for all of the node's frontends."""

    def __init__(self) -> None:
        self._keeping: asyncio.Task[None] | None = None

    def keep(self) -> None:
        """Have one from soon on, until `release`."""
        if self._keeping is None:
            self._keeping = asyncio.get_running_loop().create_task(_keep())

    def release(self) -> None:
        """Look no more; the one that is there may stay for the next."""
        if self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None


async def _keep() -> None:
    try:
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            if not await asyncio.to_thread(_is_there):
                await asyncio.to_thread(_ask_for_one)
            await asyncio.sleep(LOOK_SECONDS)
    except Exception as error:
        # What is asked is of Ray's inner protocol; nothing else depends on it.
        logger.warning("Ray keeps no process ready: when this frontend dies, the next one takes longer: %s", error)


def _is_there() -> bool:
    """Whether Ray's node, the parent of all its processes, has one that is idle, or on its way to be."""
    node = os.getppid()
    for child in Path(f"/proc/{node}/task/{node}/children").read_text().split():
        with suppress(OSError):  # it may have ended
            command = Path(f"/proc/{child}/cmdline").read_bytes()
            if command.startswith(IDLE) or STARTING in command:
                return True
    return False


def _ask_for_one() -> None:
    """Raises RpcError, or whatever else is raised where Ray is not as expected."""
    # Inside, since these are Ray's own: a version that has them elsewhere must not keep frontends from starting.
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
