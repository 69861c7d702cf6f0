"""Where the stage replicas of all sessions are: a small detached actor, one in a Ray cluster.

Replicas announce themselves every second and frontends ask for those of their session. What is not announced again
is forgotten, so a directory that was restarted knows everything again after a second.
"""

import time
from typing import Any, Final

import ray
from ray.actor import ActorHandle

from partita_api.meta import SpecModel
from partita_runtime.scheduling.events import StageRef
from partita_runtime.serving.transport.wire import Hop

NAME: Final = "partita-directory"
NAMESPACE: Final = "partita"
ANNOUNCE_SECONDS: Final = 1.0
FORGET_SECONDS: Final = 3.0


class Announcement(SpecModel):
    """One stage replica that is ready for batches."""

    replica: str
    """Unique id of the replica; a restarted one has another."""
    session_key: str
    plan: str
    module: str
    pipeline: str
    stage: int
    node: str
    """The Ray node that it runs on; its network is shared with the others there."""
    hop: Hop
    profile: str
    """Content key of the profile that its plan was made from."""
    partition: str | None = None
    """Digest of the cut of the model that it has loaded."""
    warnings: tuple[str, ...] = ()
    """What it had to do otherwise than planned, such as running on the CPU."""
    can_make_place: bool = False
    """Whether it takes what stages are told by `relocation.Relocation`; older ones would fail at it."""
    vgpu: str | None = None
    """The vGPU that it shares with replicas of other stages; None if it has one of its own."""

    @property
    def worker(self) -> str:
        """What runs its batches, one at a time."""
        return self.vgpu or self.replica

    @property
    def ref(self) -> StageRef:
        """The stage that it runs."""
        return StageRef(self.module, self.pipeline, self.stage)


def as_of_now(announcement: Announcement) -> Announcement:
    """What a replica of another version announced: what that does not know of is at its default.

    It was pickled, which leaves out what its class did not have, and lets that be missing here.
    """
    return Announcement.model_construct(**announcement.__dict__)


class Entries:
    """The directory's state: who announced what when. `now` is in seconds on any one clock."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[Announcement, float]] = {}

    def announce(self, announcement: Announcement, now: float) -> None:
        """Remember a replica for FORGET_SECONDS."""
        self._entries[announcement.replica] = (announcement, now)

    def withdraw(self, replica: str) -> None:
        """Forget a replica that takes no more batches."""
        self._entries.pop(replica, None)

    def replicas(self, session_key: str, now: float) -> list[Announcement]:
        """The session's replicas, in the order of their ids."""
        self._entries = {k: (a, at) for k, (a, at) in self._entries.items() if now - at < FORGET_SECONDS}
        return [a for _, (a, _) in sorted(self._entries.items()) if a.session_key == session_key]


class _DirectoryActor:
    """`Entries` behind Ray, by the actor's own clock."""

    def __init__(self) -> None:
        self._entries = Entries()

    def announce(self, announcement: Announcement) -> None:
        self._entries.announce(announcement, time.monotonic())

    def withdraw(self, replica: str) -> None:
        self._entries.withdraw(replica)

    def replicas(self, session_key: str) -> list[Announcement]:
        return self._entries.replicas(session_key, time.monotonic())


class Directory:
    """The cluster's directory. All calls raise LookupError while it is away; just call again later."""

    def __init__(self) -> None:
        self._actor: ActorHandle[Any] | None = None

    async def announce(self, announcement: Announcement) -> None:
        """Say that a replica is ready."""
        await self._call("announce", announcement)

    async def withdraw(self, replica: str) -> None:
        """Say that a replica takes no more batches."""
        await self._call("withdraw", replica)

    async def replicas(self, session_key: str) -> list[Announcement]:
        """The replicas of a session that are ready."""
        answer: list[Announcement] = await self._call("replicas", session_key)
        return [as_of_now(announcement) for announcement in answer]

    async def _call(self, method: str, argument: object) -> Any:
        if self._actor is None:
            self._actor = (
                ray.remote(_DirectoryActor)
                .options(
                    name=NAME,
                    namespace=NAMESPACE,
                    lifetime="detached",
                    get_if_exists=True,
                    num_cpus=0,
                    max_restarts=-1,
                )
                .remote()
            )
        try:
            return await getattr(self._actor, method).remote(argument)
        except ray.exceptions.RayError as error:
            self._actor = None  # it may be created anew under its name
            raise LookupError(f"the directory of replicas is away: {error}") from error
