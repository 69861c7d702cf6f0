"""Where the stage replicas of all sessions are: a small detached actor, one in a Ray cluster.

Replicas announce themselves every second, and frontends look up those of their session. Replicas that stop announcing
are removed, and a directory that was restarted knows all replicas after a second.

Announcements travel as JSON. A reader ignores fields that it does not know, and uses defaults for optional fields that
are missing. So replicas of another version are found, unless VERSION differs: those are ignored.
"""

import asyncio
import logging
import time
from typing import Any, Final, NamedTuple

import ray
from pydantic import ValidationError
from ray.actor import ActorHandle

from partita_api.meta import StatusModel
from partita_runtime.scheduling.events import StageRef
from partita_runtime.serving.transport.wire import PeerAddress

logger = logging.getLogger(__name__)

NAME: Final = "partita-directory"
NAMESPACE: Final = "partita"
ANNOUNCE_SECONDS: Final = 1.0
FORGET_SECONDS: Final = 3.0
_HEAD_RESOURCE: Final = "node:__internal_head__"
"""A resource that Ray gives the head, and no other node."""
VERSION: Final = 1
"""Of the form of an announcement; one more after each change that older or newer readers cannot handle."""


class Announcement(StatusModel):
    """One stage replica that takes batches."""

    version: int = VERSION
    replica: str
    """Unique id of the replica; a restarted one has another."""
    session_key: str
    plan: str
    module: str
    pipeline: str
    stage: int
    node: str
    """The Ray node that it runs on; replicas of one node share its network."""
    address: PeerAddress
    profile: str
    """Content key of the profile that its plan was made from."""
    partition: str | None = None
    """Digest of the partition of the model that it has loaded."""
    warnings: tuple[str, ...] = ()
    """Deviations from the plan, such as running on the CPU."""
    any_size: bool = False
    """Whether it takes batches of samples that are smaller than its size class."""
    can_make_place: bool = False
    """Whether it handles `relocation.Relocation`; older replicas would fail."""
    vgpu: str | None = None
    """The vGPU that it shares with replicas of other stages; None if it has its own."""

    @property
    def worker(self) -> str:
        """The vGPU that runs its batches, as the schedulers call it."""
        return self.vgpu or self.replica

    @property
    def ref(self) -> StageRef:
        """The stage that it runs."""
        return StageRef(self.module, self.pipeline, self.stage)


def read_announcement(text: str) -> Announcement | None:
    """The announcement in a JSON text; None for one of another version."""
    try:
        announcement = Announcement.model_validate_json(text)
    except ValidationError as error:
        logger.warning("ignored an announcement that is not of version %d: %s", VERSION, error)
        return None
    return announcement if announcement.version == VERSION else None


class _Entry(NamedTuple):
    session_key: str
    announcement: str
    """JSON."""
    at: float


class Entries:
    """The directory's state. `now` is in seconds on any one clock."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def announce(self, replica: str, session_key: str, announcement: str, now: float) -> None:
        """Keep a replica's announcement, in JSON, for FORGET_SECONDS."""
        self._entries[replica] = _Entry(session_key, announcement, now)

    def withdraw(self, replica: str) -> None:
        """Remove a replica that takes no more batches."""
        self._entries.pop(replica, None)

    def replicas(self, session_key: str, now: float) -> list[str]:
        """The announcements of the session's replicas, in the order of their ids."""
        self._entries = {replica: e for replica, e in self._entries.items() if now - e.at < FORGET_SECONDS}
        return [e.announcement for _, e in sorted(self._entries.items()) if e.session_key == session_key]


class _DirectoryActor:
    """`Entries` behind Ray, by the actor's own clock."""

    def __init__(self) -> None:
        self._entries = Entries()

    def announce(self, replica: str, session_key: str, announcement: str) -> None:
        self._entries.announce(replica, session_key, announcement, time.monotonic())

    def withdraw(self, replica: str) -> None:
        self._entries.withdraw(replica)

    def replicas(self, session_key: str) -> list[str]:
        return self._entries.replicas(session_key, time.monotonic())


class Directory:
    """The cluster's directory. All calls raise LookupError while it is away; call again later."""

    def __init__(self) -> None:
        self._actor: ActorHandle[Any] | None = None
        self._obtaining: asyncio.Task[ActorHandle[Any]] | None = None

    async def announce(self, announcement: Announcement) -> None:
        """A replica takes batches."""
        text = announcement.model_dump_json(by_alias=True)
        await self._call("announce", announcement.replica, announcement.session_key, text)

    async def withdraw(self, replica: str) -> None:
        """A replica takes no more batches."""
        await self._call("withdraw", replica)

    async def replicas(self, session_key: str) -> list[Announcement]:
        """The replicas of a session that take batches."""
        texts: list[str] = await self._call("replicas", session_key)
        return [announcement for text in texts if (announcement := read_announcement(text)) is not None]

    async def _call(self, method: str, *arguments: str) -> Any:
        try:
            actor = await self._obtain()
            return await getattr(actor, method).remote(*arguments)
        except ray.exceptions.RayError as error:
            self._actor = None  # a new one may have the same name
            raise LookupError(f"the directory of replicas is away: {error}") from error

    async def _obtain(self) -> ActorHandle[Any]:
        """The actor, from a thread: Ray's call for this blocks for as long as the head is away."""
        if self._actor is None:
            if self._obtaining is None or self._obtaining.done():
                self._obtaining = asyncio.create_task(asyncio.to_thread(_directory_actor))
            self._actor = await asyncio.shield(self._obtaining)
        return self._actor


def _directory_actor() -> ActorHandle[Any]:
    """The cluster's directory, which starts on Ray's head if there is none.

    On any other node, Ray's autoscaler would never see that node as idle, and would keep its accelerator.
    """
    actor: ActorHandle[Any] = (
        ray.remote(_DirectoryActor)
        .options(
            name=NAME,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            resources={_HEAD_RESOURCE: 0.001},
            max_restarts=-1,
        )
        .remote()
    )
    return actor
