"""The messages between the frontends of a session and the coordinator that schedules for all of them.

They carry what the scheduling core knows of requests and batches, never tensors. All times are in microseconds on the
frontend's clock, in both directions; the coordinator translates.

A list can have hundreds of entries, so they are plain dataclasses. Per request, their field names cost 0.5 us more than
arrays without names would: 8 % of the messages and a compiled core. Frozen dataclasses would cost 1.0 us more than
arrays, pydantic models 2.7 us.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from partita_runtime.scheduling.events import DropReason
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.serving.telemetry.signals import Outcome, SessionSignals
from partita_runtime.serving.transport.wire import MAX_REASON, Dialect, Id, Micros, Name, WireModel

MAX_HEADER_BYTES: Final = 16 * 1024 * 1024
"""Largest message on a coordinator's stream: a plan, or everything that waits in a frontend. It is all header."""

_Reason = Annotated[str, Field(max_length=MAX_REASON)]
_Count = Annotated[int, Field(ge=0)]
_StageNumber = Annotated[int, Field(ge=0, lt=64)]


class _Entry:
    """A part of a message: an object in JSON, checked on arrival. Unknown fields are refused."""

    __slots__ = ()
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, order=True)
class BatchDelays(_Entry):
    """What a frontend keeps free for a batch's way to its first stage (microseconds)."""

    control: Micros = 0
    """Whatever the size of the batch."""
    per_request: Micros = 0
    """For each request of the batch."""


@dataclass(slots=True)
class WorkerJoined(_Entry):
    """A worker takes batches of one stage from the frontend."""

    module: Name
    pipeline: Name
    stage: _StageNumber
    worker: Name
    node: Name


@dataclass(slots=True)
class WorkerLeft(_Entry):
    """A worker takes no more batches of one stage from the frontend."""

    module: Name
    pipeline: Name
    stage: _StageNumber
    worker: Name


@dataclass(slots=True)
class WorkerBusy(_Entry):
    """A worker has a batch that another scheduler decided."""

    worker: Name
    until: Micros


@dataclass(slots=True)
class SubRequestArrived(_Entry):
    """A sub-request waits for a batch."""

    id: Id
    module: Name
    deadline: Micros
    at: Micros
    call: Id
    """Numbers the client's call within the frontend."""


@dataclass(slots=True)
class StageCompleted(_Entry):
    """A batch left a stage."""

    batch: Id
    stage: _StageNumber
    at: Micros
    took: Micros | None
    """How long it ran; None if that was not measured."""


@dataclass(slots=True)
class BatchTransferred(_Entry):
    """A batch arrived at a stage from the one before."""

    batch: Id
    stage: _StageNumber
    at: Micros
    took: Micros | None
    """How long it was under way; None if that was not measured."""


@dataclass(slots=True)
class BatchFailed(_Entry):
    """A batch could not be run."""

    batch: Id
    reason: _Reason


@dataclass(slots=True)
class SubRequestDropped(_Entry):
    """The coordinator gave a sub-request up."""

    id: Id
    module: Name
    reason: DropReason
    detail: str


@dataclass(slots=True)
class RequestsEnded(_Entry):
    """The samples of one request ended."""

    outcome: Outcome
    latency: Micros
    samples: _Count


@dataclass(frozen=True, slots=True)
class HeldTotals(_Entry):
    """Requests that were held until there were replicas."""

    samples: _Count = 0
    micros: Micros = 0
    """How long all of them were held, summed up."""


class Register(WireModel):
    """First message of a frontend on a stream for scheduling. A frontend has one such stream for each plan."""

    kind: Literal["register"] = "register"
    frontend: Name
    """Id of the frontend's dispatcher, which replicas answer to."""
    plan: SchedulingPlan
    next_batch: Id
    """Id of the first batch that the coordinator dispatches; the others are counted from there."""


class Registered(WireModel):
    """The coordinator's answer: it schedules for the frontend from now on."""

    kind: Literal["registered"] = "registered"


class FrontendEvents(WireModel):
    """What happened at a frontend in one turn of its event loop. An empty one says that the frontend is alive.

    The coordinator handles the fields in this order, whatever the order of the events.
    """

    kind: Literal["frontend_events"] = "frontend_events"
    sent: Micros
    delays: BatchDelays | None = None
    """Set when the delays have changed."""
    workers_joined: tuple[WorkerJoined, ...] = ()
    workers_busy: tuple[WorkerBusy, ...] = ()
    arrived: tuple[SubRequestArrived, ...] = ()
    cancelled: tuple[Id, ...] = ()
    """Sub-requests whose clients have left."""
    completed: tuple[StageCompleted, ...] = ()
    transferred: tuple[BatchTransferred, ...] = ()
    failed: tuple[BatchFailed, ...] = ()
    workers_draining: tuple[Name, ...] = ()
    """Workers that take no more batches from any frontend."""
    workers_left: tuple[WorkerLeft, ...] = ()
    workers_lost: tuple[Name, ...] = ()
    """Workers that this frontend cannot reach any more."""
    lost: tuple[Id, ...] = ()
    """Batches that were lost with a worker."""


class BatchDispatched(WireModel):
    """A batch to send, as `scheduling.events.Dispatch` has it; its id follows from `Register.next_batch`."""

    module: Name
    pipeline: Name
    request_ids: tuple[Id, ...]
    path: tuple[Name, ...]
    starts: tuple[int, ...]
    finish: int
    deadline: int
    transfer_starts: tuple[int, ...] = ()
    links_free: tuple[int, ...] = ()
    slack: int = 0


class Decisions(WireModel):
    """What the coordinator decided for a frontend, drops first. An empty one says that the coordinator is alive."""

    kind: Literal["decisions"] = "decisions"
    due: int
    """When they were due."""
    late: Micros = 0
    """How much later they were made."""
    drops: tuple[SubRequestDropped, ...] = ()
    batches: tuple[BatchDispatched, ...] = ()


class RegisterReporter(WireModel):
    """First message of a frontend on its stream for metrics."""

    kind: Literal["register_reporter"] = "register_reporter"
    session: str


class _LabelledCounts(WireModel):
    """The counters of `Meter.labelled`, by the same names."""

    cut_off: dict[str, _Count] = {}
    left_out: dict[str, _Count] = {}
    information: dict[str, _Count] = {}
    size_classes: dict[str, _Count] = {}
    versions: dict[str, _Count] = {}
    shadows: dict[str, _Count] = {}
    decided: dict[str, _Count] = {}
    sent: dict[str, _Count] = {}
    endpoint_calls: dict[str, _Count] = {}
    logged: dict[str, _Count] = {}


class MetricsReport(_LabelledCounts):
    """A frontend's state, and what it has counted since its last report."""

    kind: Literal["metrics_report"] = "metrics_report"
    frontend: Name
    """The id that it registered with; meaningless if it uses no plan."""
    plan: str | None
    """The plan that it uses: the old one for as long as it finishes requests on it."""
    used_micros: Micros
    """For how long it has used the plan."""
    next_plan: str | None
    message: str
    grpc_address: str | None
    http_address: str | None
    window_micros: Micros
    """Length of the session's autoscaling window."""
    held: _Count = 0
    """Requests that wait there for replicas."""
    idle_micros: Micros = 0
    """Time since it last had a request."""
    arrived: _Count = 0
    ended: tuple[RequestsEnded, ...] = ()
    were_held: HeldTotals = HeldTotals()


class SessionMetrics(_LabelledCounts):
    """What was measured at all frontends of the session."""

    kind: Literal["session_metrics"] = "session_metrics"
    signals: SessionSignals
    outcomes: dict[Outcome, _Count]
    """Since the coordinator began."""
    cut_off: dict[str, _Count]
    requests: dict[Outcome, _Count] = {}
    request_micros: dict[Outcome, Micros] = {}
    were_held: HeldTotals = HeldTotals()


CoordinatorMessage = (
    Register | Registered | FrontendEvents | Decisions | RegisterReporter | MetricsReport | SessionMetrics
)

COORDINATOR_DIALECT: Final[Dialect[CoordinatorMessage]] = Dialect(
    TypeAdapter(Annotated[CoordinatorMessage, Field(discriminator="kind")]), MAX_HEADER_BYTES
)
