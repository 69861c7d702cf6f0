"""The messages between frontends that share their replicas and the rank that schedules for all of them.

Of requests and batches they hold what the scheduling core knows of them, never a tensor. Times of what a frontend
says, and of what it is told, are on that frontend's clock (microseconds); the rank translates.
"""

from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.serving.telemetry.signals import Outcome, SessionSignals
from partita_runtime.serving.transport.wire import MAX_REASON, Dialect, Id, Micros, Name, WireModel

MAX_HEADER_BYTES: Final = 16 * 1024 * 1024
"""Of a rank's streams, whose messages are all header: a plan, or all that waits in a frontend."""

_Reason = Annotated[str, Field(max_length=MAX_REASON)]
_Count = Annotated[int, Field(ge=0)]
_StageNumber = Annotated[int, Field(ge=0, lt=64)]


class TakeSeat(WireModel):
    """First message on a stream by which a frontend has its batches decided: one for each plan that it serves."""

    kind: Literal["take_seat"] = "take_seat"
    token: Name
    seat: Name
    """Id of the dispatcher, to which replicas answer."""
    plan: SchedulingPlan
    next_batch: Id
    """What the first batch that is decided will be called; the others are counted from there."""


class Seated(WireModel):
    """The rank's answer: it decides from now on."""

    kind: Literal["seated"] = "seated"


class Told(WireModel):
    """What happened at a frontend, in one turn of its event loop; it also says that the frontend is there.

    It is taken in this order of kinds, whatever the order of what happened.
    """

    kind: Literal["told"] = "told"
    sent: Micros
    delays: tuple[Micros, Micros] | None = None
    """Another delay of a batch's way: (microseconds, microseconds for each request)."""
    joined: tuple[tuple[Name, Name, _StageNumber, Name, Name], ...] = ()
    """Replicas that take batches: module, pipeline, stage, worker, node."""
    busy: tuple[tuple[Name, Micros], ...] = ()
    """Workers with a batch that was decided elsewhere, and until when."""
    arrived: tuple[tuple[Id, Name, Micros, Micros], ...] = ()
    """Sub-requests: id, module, deadline, when it arrived."""
    cancelled: tuple[Id, ...] = ()
    """Sub-requests that nobody waits for any more."""
    completed: tuple[tuple[Id, _StageNumber, Micros, Micros | None], ...] = ()
    """Batches that left a stage: batch, stage, when, and how long it ran, if that was measured."""
    failed: tuple[tuple[Id, _Reason], ...] = ()
    """Batches that could not be run, and why."""
    draining: tuple[Name, ...] = ()
    """Workers that take nothing more, from whomever."""
    parted: tuple[tuple[Name, Name, _StageNumber, Name], ...] = ()
    """Workers that take nothing more of one stage from this frontend: module, pipeline, stage, worker."""
    left: tuple[Name, ...] = ()
    """Workers that this frontend cannot reach any more."""
    lost: tuple[Id, ...] = ()
    """Batches that were lost with a worker."""


class Grant(WireModel):
    """A batch that may go, as `scheduling.events.Dispatch` has it; what it is called follows from `TakeSeat`."""

    module: Name
    pipeline: Name
    request_ids: tuple[Id, ...]
    path: tuple[Name, ...]
    starts: tuple[int, ...]
    finish: int
    deadline: int
    transfer_starts: tuple[int, ...] = ()


class Decided(WireModel):
    """What the rank decided for a frontend, drops first; without any, it says that the rank is there."""

    kind: Literal["decided"] = "decided"
    due: int
    """The moment that it was decided for."""
    late: Micros = 0
    """By how much that was missed."""
    drops: tuple[tuple[Id, Name, DropReason, str], ...] = ()
    """Sub-requests that are given up: id, module, reason, detail."""
    grants: tuple[Grant, ...] = ()


class TakePart(WireModel):
    """First message on the stream by which a frontend takes part in measuring the session."""

    kind: Literal["take_part"] = "take_part"
    token: Name
    session: str


class Part(WireModel):
    """What a frontend is at, and what it has counted since it last said so."""

    kind: Literal["part"] = "part"
    seat: Name
    """At which it is scheduled, if it uses a plan."""
    plan: str | None
    """The plan that it uses; the one before it for as long as requests are being finished on that."""
    used_micros: Micros
    """For how long it has."""
    next_plan: str | None
    message: str
    grpc_address: str | None
    http_address: str | None
    window_micros: Micros
    """How far back the session looks."""
    held: _Count = 0
    """Requests that wait for replicas there."""
    idle_micros: Micros = 0
    """For how long no request has been there."""
    arrived: _Count = 0
    ended: tuple[tuple[Outcome, Micros, _Count], ...] = ()
    """Requests that ended: how, after how long, of how many samples."""
    cut_off: dict[str, _Count] = {}
    were_held: tuple[_Count, Micros] = (0, 0)
    """How many requests were held, and for how long together."""


class Measured(WireModel):
    """What was measured of the whole session, whichever frontend it was at."""

    kind: Literal["measured"] = "measured"
    signals: SessionSignals
    outcomes: dict[Outcome, _Count]
    """Since the rank began."""
    cut_off: dict[str, _Count]
    were_held: tuple[_Count, Micros] = (0, 0)


RankMessage = TakeSeat | Seated | Told | Decided | TakePart | Part | Measured

RANK_DIALECT: Final[Dialect[RankMessage]] = Dialect(
    TypeAdapter(Annotated[RankMessage, Field(discriminator="kind")]), MAX_HEADER_BYTES
)
